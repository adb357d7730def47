"""Why one kernel takes what it takes: its tiles, what each costs every unit and memory, and what is next in line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tpusim.analysis.answers.caveats import Caveats
from tpusim.analysis.bands import compiler_clock_hz
from tpusim.analysis.estimates import GapReason, gap_reason
from tpusim.analysis.explained.blocks import TriedBlocks
from tpusim.analysis.explained.body import Body
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM
from tpusim.program.compilation import TriedTiles
from tpusim.program.provenance import Provenance
from tpusim.program.steps import Kernel, TileLoop
from tpusim.timeline.records import Record, executions
from tpusim.units import ps_to_us

_SAME = (
    "name", "opcode", "source", "line", "tiles", "cores", "loops", "flops", "compiler_cycles", "basis", "vmem_bytes",
)  # fmt: skip
"""Fields of an explanation that are those of its kernel."""


class Operand(msgspec.Struct, frozen=True, kw_only=True):
    """What one operand or result moves; ``unpadded_bytes`` is 0 where its shape is not known."""

    name: str
    space: str
    is_output: bool
    block_bytes: float
    fetches: int
    chunk_bytes: int
    total_bytes: float
    physical_bytes: int = 0
    unpadded_bytes: int = 0


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Tiles that are alike, where not all are: what one of them computes on a core, and moves beside that.

    What moves takes ``moving_cycles``, and ``latency_cycles`` before that until memory answers. ``is_skipped`` where it
    runs nothing of what others do.
    """

    tiles: int
    cycles: float
    moved_bytes: float
    moving_cycles: float
    latency_cycles: float
    is_skipped: bool

    @property
    def waited_cycles(self) -> float:
        """From asking for what moves to having it."""
        return self.latency_cycles + self.moving_cycles


class Explanation(Caveats, frozen=True, kw_only=True):
    """One kernel. Times are in picoseconds; ``cycles`` are those of one tile on one core, by unit or memory.

    ``stages`` are what a tile does one after another: of each the unit that takes longest, and its cycles. ``alone_ps``
    is the kernel's time by itself, ``in_run_ps`` what its ``count`` executions took in the program. ``array_share`` is
    how much of the arrays' multipliers has something to do while rows stream, 0 without a product.
    ``stated_flops`` are those that one written by hand states, of which ``flops`` leave out those of skipped blocks.
    ``compiled`` is who compiled the program if that is worth saying. Where that was tpusim, ``apart`` are kernels that
    it reads by name, each with the rule by which it does not make that itself, ``apart_users`` those that read it so.
    ``tried`` are the ways to cut it, the fastest first. ``body`` is what is inside of one that was written by hand,
    where that could be read, ``blocks`` are its own and larger ones, the fastest first.
    """

    name: str
    opcode: str
    chip: str
    source: str
    line: int
    tiles: int
    cores: int
    loops: tuple[TileLoop, ...]
    alone_ps: int
    in_run_ps: int
    count: int
    parts_ps: dict[str, int]
    cycles: dict[str, float]
    stages: tuple[tuple[str, float], ...]
    overhead_cycles: float
    operands: tuple[Operand, ...]
    array_share: float
    flops: float
    basis: str
    vmem_bytes: float
    floor_ps: int
    stated_flops: float
    kinds: tuple[Kind, ...]
    compiler_cycles: int
    compiler_clock_hz: float
    compiled: str = ""
    apart: dict[str, str] = msgspec.field(default_factory=dict)
    apart_users: dict[str, str] = msgspec.field(default_factory=dict)
    tried: tuple[TriedTiles, ...] = ()
    body: Body | None = None
    blocks: tuple[TriedBlocks, ...] = ()

    @property
    def compiler_gap(self) -> GapReason:
        """Why the compiler's own estimate is another time than ours."""
        if not self.compiler_clock_hz:
            return ""
        us_per_cycle = 1e6 / self.compiler_clock_hz
        hbm_us = self.cycles.get(HBM, 0.0) * self.tiles / self.cores * us_per_cycle
        return gap_reason(ps_to_us(self.alone_ps), self.compiler_cycles * us_per_cycle, hbm_us)

    @property
    def ranked(self) -> tuple[tuple[str, float], ...]:
        """Units and memories with their cycles a tile, the most first."""
        return tuple(sorted(self.cycles.items(), key=lambda item: -item[1]))


def explanation(
    kernel: Kernel,
    chip: Chip,
    cycles: Mapping[str, float],
    overhead_cycles: float,
    records: tuple[Record, Sequence[Record]],
    shapes: Mapping[str, tuple[int, int]],
    *,
    stages: Sequence[tuple[str, float]],
    floor_ps: int = 0,
    stated_flops: float = 0.0,
    kinds: Sequence[Kind] = (),
    provenance: Provenance | None = None,
    body: Body | None = None,
    blocks: tuple[TriedBlocks, ...] = (),
) -> Explanation:
    """Return what is known of a kernel.

    ``cycles`` are a tile's by unit or memory, ``stages`` those of the slowest unit of each of its stages,
    ``overhead_cycles`` those between two tiles. ``records`` are the one of
    the kernel without neighbours and those of the program's run, ``shapes`` the physical and unpadded bytes of arrays
    by name. ``provenance`` is what made the program, ``body`` the kernel from the inside, ``blocks`` are those tried.
    """
    alone, in_run = records
    passed = sum(m.streamed_rows for m in kernel.work.matmuls) * kernel.tiles * chip.mxu.rows * chip.mxu.columns
    return Explanation(
        **{name: getattr(kernel, name) for name in _SAME},
        chip=chip.name,
        alone_ps=alone.duration_ps,
        in_run_ps=sum(record.total_ps for record in in_run),
        count=executions(in_run),
        parts_ps=alone.parts,
        cycles={unit: count for unit, count in cycles.items() if count > 0},
        stages=tuple(stages),
        overhead_cycles=overhead_cycles,
        operands=tuple(_operands(kernel, shapes)),
        floor_ps=floor_ps,
        stated_flops=stated_flops,
        kinds=tuple(sorted(kinds, key=lambda kind: -kind.tiles * max(kind.cycles, kind.waited_cycles))),
        # The multiply-adds that the program asked for, of those that streaming rows pass by.
        array_share=kernel.product_flops / 2 / passed if passed else 0.0,
        compiler_clock_hz=compiler_clock_hz(provenance, chip),
        body=body,
        blocks=blocks,
    )


def _operands(kernel: Kernel, shapes: Mapping[str, tuple[int, int]]) -> list[Operand]:
    """Return what each operand and result moves, the largest first."""
    found = []
    for stream in kernel.streams:
        physical, unpadded = shapes.get(stream.operand, (0, 0))
        same = {name: getattr(stream, name) for name in Operand.__struct_fields__ if hasattr(stream, name)}
        found.append(Operand(name=stream.operand, physical_bytes=physical, unpadded_bytes=unpadded, **same))
    return sorted(found, key=lambda operand: -operand.total_bytes)
