"""The steps of a lowered program: what the core issues, in order.

Each step is one scheduled instruction that takes time. ``needs`` names the asynchronous steps that must have ended
before it may begin. Steps are plain data: they print, compare, and travel as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import ceil
from typing import Literal

import msgspec

from tpusim.hardware.units import HBM, HOST, SMEM, VMEM, MemorySpace
from tpusim.program.work import Floor, Stream, TileClass, TilePart, VectorLoop, Work


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag=True, kw_only=True):
    """Base of all steps.

    ``line`` is where the instruction stands in the source text (0: unknown), ``op_name`` and ``source`` what its
    metadata says (the framework's name and ``file:line``).
    """

    name: str
    opcode: str
    category: str = ""
    # Names, not objects, so that a program survives being saved and edited by hand.
    needs: tuple[str, ...] = ()
    line: int = 0
    op_name: str = ""
    source: str = ""


class TileLoop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One loop of a kernel's tile nest: the kind of dimension that it cuts, and into how many pieces."""

    over: str
    trips: int


Family = Literal["", "product", "convolution", "vector", "copy", "hand-written", "custom call"]
"""What kernels are measured apart by: products without and with windows that slide, other arithmetic, what only moves
data, code written elsewhere, with its body known and without; empty on the scalar core.
"""


Basis = Literal["", "body", "stated cost", "bytes"]
"""What the time of a kernel that was written elsewhere is made of; empty for those that the compiler wrote."""


def blocks_bytes(streams: Iterable[Stream]) -> float:
    """Return the VMEM that blocks take; what lies in VMEM or SMEM is used where it is."""
    # Two of each block that changes from tile to tile, so that the next can come in while one is worked on.
    return sum([s.block_bytes * (2 if s.fetches > 1 else 1) for s in streams if s.space not in (VMEM, SMEM)])


class Kernel(Step, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """Compiled code on the core: a loop nest of ``tiles`` alike tiles, each with ``work`` and its share of ``streams``.

    ``stages`` are what each tile does one after another, together its ``work``; empty where all of it is done at once.
    ``flops`` is what the program asked for, before padding. ``compiler_cycles`` is the compiler's own estimate, 0 if it
    stated none. A ``scalar`` kernel runs on the scalar core and has no fixed cost of a kernel.
    """

    # One tile and a count, no list: a kernel of a million tiles is still a line, and its time a closed form.
    tiles: int = 1
    # For readers of the file, outermost first; empty where the order of the tiles is not known.
    loops: tuple[TileLoop, ...] = ()
    work: Work = Work()
    stages: tuple[Work, ...] = ()
    vector_loop: VectorLoop = VectorLoop()
    parts: tuple[TilePart, ...] = ()
    classes: tuple[TileClass, ...] = ()
    floor: Floor = Floor()
    streams: tuple[Stream, ...] = ()
    flops: float = 0.0
    # Those of its products alone, for which the matrix unit is there.
    product_flops: float = 0.0
    # The peak that these operations are measured against depends on the type.
    flops_type: str = "bf16"
    # Where products are of several types, how much of these operations is of each: together 1. The one that takes most
    # time at its peak is then the ``flops_type``.
    type_shares: dict[str, float] = {}
    compiler_cycles: int = 0
    scoped_vmem_bytes: int = 0
    cores: int = 1
    scalar: bool = False
    family: Family = ""
    basis: Basis = ""

    @property
    def vmem_bytes(self) -> int:
        """VMEM that its tiles need: what the compiler states, else the blocks that other memories send and get.

        The scalar core has none, and what hand-written code copies itself goes where that wants it: its streams come
        behind those that move beside the tiles.
        """
        beside = self.streams[: len(self.classes[0].moves)] if self.classes else self.streams
        return self.scoped_vmem_bytes or (0 if self.scalar else ceil(blocks_bytes(beside)))

    def moved_bytes(self, tiles: TileClass) -> dict[str, float]:
        """Return what comes ``in`` and goes ``out`` beside a tile: what lies in VMEM or SMEM already stays there."""
        found = {"in": 0.0, "out": 0.0}
        for stream, count in zip(self.streams, tiles.moves, strict=False):
            if stream.space not in (VMEM, SMEM):
                found["out" if stream.is_output else "in"] += stream.block_bytes * count
        return found

    @property
    def hbm_bytes(self) -> float:
        """Bytes to and from HBM."""
        return sum(s.total_bytes for s in self.streams if s.space == HBM)


class Copy(Step, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """An asynchronous transfer between memories of one device, running beside the core until a step needs it."""

    n_bytes: float = 0.0
    source_space: MemorySpace = HBM
    target_space: MemorySpace = VMEM
    # In bytes; 0 where runs are long enough not to matter.
    chunk_bytes: int = 0
    # Of the first byte; None where it is not known, or of no interest to the chip's memory.
    source_address: int | None = None
    target_address: int | None = None
    through: Literal["dma", "sparsecore"] = "dma"
    # Set where the compiler lets the run before bring the operand in (cross-program prefetch).
    is_prefetch: bool = False


class Wait(Step, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """The core waits until the asynchronous steps that it needs have ended (``copy-done`` and its kind)."""


class Algorithm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """How the compiler says that a collective is carried out (``collective_algorithm_config``).

    ``one_ring`` goes round all chips of a group instead of along each axis; ``lanes`` are the one-way rings that work
    at the same time, 0 for all there are, and where they are ``one_way`` each goes all the way round instead of meeting
    another half-way; in ``single_phase`` every device gets all operands and adds them up itself. What is left
    ``by_slice`` is chosen where the slice is known.
    """

    name: str
    one_ring: bool = False
    lanes: int = 0
    single_phase: bool = False
    one_way: bool = False
    by_slice: bool = False


SCALAR_BYTES = 4096
"""The most that a scalar takes, padded to a whole tile: what the scalar core reads or writes."""

COLLECTIVE_KINDS = frozenset(
    "all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all reduce-scatter".split()
)
"""What groups of devices do together, by XLA's opcodes."""


class Collective(Step, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """Communication among groups of devices.

    ``n_bytes`` is the larger of what one device puts in and what it gets out, ``hbm_bytes`` what it reads and writes in
    HBM for that; ``is_async`` ones run beside the core. ``groups`` list device numbers (replica times partitions plus
    partition), ``pairs`` the sources and targets of a permute; where neither is stated ``group_count`` groups of
    ``group_size`` neighbours are meant. ``shares`` are the parts of its operand that a device of a ragged all-to-all
    sends to the members of its group, where the program states them; else the parts are even.
    """

    kind: str = ""
    n_bytes: float = 0.0
    hbm_bytes: float = 0.0
    group_size: int = 1
    group_count: int = 1
    is_async: bool = False
    flops: float = 0.0
    channel_id: int = 0
    groups: tuple[tuple[int, ...], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    algorithm: Algorithm | None = None
    shares: tuple[float, ...] = ()

    @property
    def devices_needed(self) -> int:
        """How many devices its groups or pairs name."""
        named = [max(group) for group in chain(self.groups, self.pairs) if group]
        return 1 + max(named) if named else self.group_size * self.group_count


class HostTransfer(Step, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """Infeed, outfeed, and sends or receives whose other end is the host."""

    n_bytes: float = 0.0
    hbm_bytes: float = 0.0
    to_host: bool = False
    is_async: bool = False


class ChannelTransfer(Step, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A send to, or a receive from, another device over a channel."""

    n_bytes: float = 0.0
    hbm_bytes: float = 0.0
    channel_id: int = 0
    is_send: bool = False
    # Sources and targets where every device runs both ends; without pairs any device that comes to the channel.
    pairs: tuple[tuple[int, int], ...] | None = None


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What some devices choose, one visit after the other and then from the start again; no ``devices`` are all."""

    values: tuple[int, ...]
    devices: tuple[int, ...] = ()


class Loop(Step, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A ``while``: ``condition`` and ``body`` run ``trips`` times, then ``condition`` once more.

    Where that depends on the device or changes from visit to visit ``choices`` say it, and ``trips`` is the most.
    """

    trips: int = 1
    choices: tuple[Choice, ...] = ()
    trips_from: str = ""
    condition: tuple[AnyStep, ...] = ()
    body: tuple[AnyStep, ...] = ()


class Branch(Step, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A ``conditional``: of its branches the one with number ``taken`` runs.

    Where that depends on the device or changes from visit to visit ``choices`` say it, and ``taken`` is the longest.
    """

    taken: int = 0
    choices: tuple[Choice, ...] = ()
    branches: tuple[tuple[AnyStep, ...], ...] = ()


class Call(Step, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """Steps of a called computation; an asynchronous call runs beside the core until a step needs it."""

    body: tuple[AnyStep, ...] = ()
    is_async: bool = False


AnyStep = Kernel | Copy | Wait | Collective | HostTransfer | ChannelTransfer | Loop | Branch | Call
Steps = tuple[AnyStep, ...]
"""A list of steps: of a program, or of what a step holds."""


def meets_host(step: AnyStep) -> bool:
    """Return whether a step by itself uses the link to the host, which the devices of a chip share."""
    if isinstance(step, Copy):
        return HOST in (step.source_space, step.target_space)
    if isinstance(step, Kernel):
        return any(stream.space == HOST for stream in step.streams)
    return isinstance(step, HostTransfer)
