"""The protocols of the units that can be replaced, and the sections of a chip's file that choose them.

| protocol | key | ships | is asked by |
|---|---|---|---|
| ``Array`` | ``mxu.model`` | ``weight-``, ``input-``, ``output-stationary`` | ``lowering/kernels``, ``cost/tile`` |
| ``Memory`` | ``hbm.model`` | ``bandwidth``, ``banked``, ``ramulator`` | ``cost/dma``, for kernels and copies |
| ``Buffers`` | ``dma.model`` | ``rotating``, ``ideal`` | ``cost/tile``, for each kernel |
| ``Fabric`` | ``ici.model`` | ``torus`` and others of ``fabrics.py`` | ``machine/placement`` |
| ``CollectiveAlgorithm`` | ``ici.algorithm`` | ``native``, ``ring``, ``halving``, ``direct`` | ``cost/collectives`` |
| ``Operations`` | ``vpu.model`` | ``table`` | ``lowering/kernels`` |
| ``Energy`` | ``power.model`` | ``events`` | ``analysis/energy`` |

A model is made once for the same ``settings`` of its section (``Class(**settings)``) and serves all devices and
threads: it answers questions and remembers nothing that its answers depend on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from tpusim.hardware.chip import Chip
from tpusim.hardware.fabric import Graph
from tpusim.hardware.torus import Torus
from tpusim.ir.module import Instruction
from tpusim.program.steps import Kernel
from tpusim.program.work import Matmul, Stream, Work


class TileProduct(msgspec.Struct, frozen=True, gc=False):
    """The product of one tile: ``separate`` products of ``rows`` by ``columns`` over ``taps`` times ``depth``.

    The left operand has ``rows``, the right one ``columns``; both are in elements of ``operand_type``.
    """

    rows: float
    columns: float
    taps: float
    depth: int
    separate: float
    operand_type: str
    passes: int


class ArrayWork(msgspec.Struct, frozen=True):
    """What the arrays of a core do for one tile, and what that asks of the rest of the core.

    ``matmul`` is without its results. ``loaded_elements`` are loaded from VMEM by the register; every sum leaves the
    arrays in ``parts``, which the vector unit adds up where the arrays do not (``mxu.accumulates_in_array``).
    """

    matmul: Matmul
    loaded_elements: float
    parts: float


class Array(Protocol):
    """The matrix units of one core."""

    def work(self, tile: TileProduct, chip: Chip) -> ArrayWork:
        """Return what one tile asks of the arrays and of VMEM."""

    def cycles(self, matmul: Matmul, chip: Chip) -> float:
        """Return the cycles that all arrays of a core take for what ``work`` returned, results included."""


class Served(msgspec.Struct, frozen=True):
    """What streams take of a memory that serves them together.

    ``load_bytes`` has for each of them the bytes of long reads that could move in the time that it takes: seconds times
    ``chip.hbm.long_read_bytes_per_second``. ``turn_cost`` is what a byte that is written between reads costs beside
    that, in bytes, and ``activations`` counts the rows that were opened, for energy.
    """

    load_bytes: Sequence[float]
    turn_cost: float = 0.0
    activations: float = 0.0


class Memory(Protocol):
    """The high-bandwidth memory of one device."""

    def serve(self, streams: Sequence[Stream], chip: Chip) -> Served:
        """Return what the streams of one kernel or copy take, which go on side by side, a block of each in turn.

        What one access leaves (an open row) the next ones of the list find; a list begins with nothing open. Bytes of
        collectives, hosts and channels are not asked for: they count as long reads.

        A stream has the ``address`` at which it begins (None: not known), ``fetches`` blocks of ``block_bytes`` in runs
        of ``chunk_bytes`` (0: in one), ``stride_bytes`` from the start of one run to the next (0: at once), and
        ``is_output`` where it is written.
        """


class Pace(msgspec.Struct, frozen=True):
    """The least time of a kernel's tiles in picoseconds, beside their computation and their bytes over the bandwidth.

    ``rounds_ps`` is for want of a free buffer, ``bursts_ps`` because more comes in with some tiles than with others.
    """

    rounds_ps: int
    bursts_ps: int


class Buffers(Protocol):
    """The buffers in VMEM through which the blocks of a kernel go."""

    def pace(self, kernel: Kernel, moving_ps: Mapping[str, int], compute_ps: int, chip: Chip) -> Pace:
        """Return the least time of all tiles together that compute for ``compute_ps``.

        ``moving_ps`` is what the traffic beside them takes on each memory.
        """


class Fabric(Protocol):
    """What joins the chips of a slice."""

    def links(self, torus: Torus, chip: Chip) -> Torus | Graph:
        """Return the links between chips that stand as in ``torus``, the slice by the chip's own rules.

        A graph numbers the chips as the torus does, and switches behind them.
        """


class Round(NamedTuple):
    """Messages that members of a group send at the same time: source, target, and the share of a collective's bytes.

    ``times`` such rounds follow each other.
    """

    messages: Sequence[tuple[int, int, float]]
    times: int = 1


class CollectiveAlgorithm(Protocol):
    """How a group of chips carries out a collective."""

    def rounds(self, kind: str, members: int) -> Sequence[Round] | None:
        """Return the rounds of messages among ``members``, numbered from 0; None leaves it to the fabric's own way.

        ``kind`` is ``all-gather`` or ``all-to-all``; a reduce-scatter is a gather backwards, an all-reduce both. Shares
        are of what all members have together: what one gathers, or what one sends to all.
        """


class Operations(Protocol):
    """What operations and kernels cost the core."""

    def work(self, instruction: Instruction, work: Work, chip: Chip) -> Work:
        """Return the work of one instruction, alone or in a fusion, where the table says that it is ``work``."""

    def kernel(self, instruction: Instruction, kernel: Kernel, chip: Chip) -> Kernel:
        """Return what a scheduled instruction (a fusion, or one by itself) runs as, where the rules make ``kernel``."""


class Energy(Protocol):
    """What a device takes in energy."""

    def joules(self, chip: Chip) -> Mapping[str, float]:
        """Return the joules of one event, an operation or a byte, by key of a record's ``activity`` (``matrix.bf16``).

        What has no key takes none; without ``hbm.rows.mean`` bytes of HBM are taken to open no rows of their own.
        """

    def idle_watts(self, chip: Chip) -> float:
        """Return what the device draws while nothing runs, in watts; what events take comes on top."""
