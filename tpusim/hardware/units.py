"""The functional units, memories and links of a device: one row each, and nowhere else are they named.

A row says what programs, records and configuration files call it (``key``), what pages call it, and which keys of a
chip file hold its rate. What works on all of them (costs, records, shares of the time, pictures) walks this table, so
that one more unit is a row here, its rate in the chip's file, and the rule that gives it work.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any, Final, Literal, get_args

import msgspec

from tpusim.errors import ConfigError
from tpusim.shapes import layout

MATRIX: Final = "matrix"
VECTOR: Final = "vector"
EUP: Final = "eup"
XLU: Final = "xlu"
LOAD: Final = "load"
STORE: Final = "store"
SCALAR: Final = "scalar"
HBM: Final = "hbm"
VMEM: Final = "vmem"
CMEM: Final = "cmem"
SMEM: Final = "smem"
SYNC: Final = "sync"
HOST: Final = "host"
HOST_IN: Final = "host_in"
HOST_OUT: Final = "host_out"
ICI: Final = "ici"
OTHER: Final = "other"

HBM_ROWS: Final = f"{HBM}.rows"
"""What the activity of a record calls the rows of HBM that were opened, where a model of the memory counts them."""

MemorySpace = Literal["hbm", "vmem", "sync", "cmem", "host", "smem", "other"]
"""The memories in which values lie."""

SPACES: Final[tuple[MemorySpace, ...]] = get_args(MemorySpace)

WORD_BITS: Final = 32
"""The width of an element of a vector register, to which registers are counted on all chips."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A functional unit, a memory or a link.

    - ``label`` and ``short`` are what pages call it, ``name`` what the page about one kernel does, ``less`` what would
      make a kernel faster that it bounds; ``bound`` is what a record says that is bound by it.
    - ``colour``, ``hatch`` and ``marker`` are those of the time that it bounds.
    - ``slots`` is the chip key of the operations that it begins each cycle, ``op_cycles`` that of the cycles that one
      takes.
    - ``rate`` is the chip key of the advertised bytes per second, ``share`` that of what is reached of them.
    - ``is_shared`` says whether the kernels of all cores draw on it.
    """

    key: str
    label: str
    short: str = ""
    name: str = ""
    bound: str = ""
    less: str = ""
    colour: str = "#9A9A9A"
    hatch: str = ""
    marker: str = "o"
    slots: str = ""
    op_cycles: str = ""
    rate: str = ""
    share: str = ""
    is_shared: bool = False

    @property
    def counts_operations(self) -> bool:
        """Whether a kernel's work states operations of it, and a cost of an opcode may."""
        return bool(self.slots or self.op_cycles)


# In the order of pages: from arithmetic outwards.
_ROWS = (
    Unit(key=MATRIX, label="MXU", name="matrix unit", bound="matrix", colour="#0072B2", marker="s",
         less="fewer rows or weight tiles (padding, passes)"),
    Unit(key=VECTOR, label="vector ALU", short="VALU", bound="vector", colour="#009E73", hatch="\\\\\\\\", marker="^",
         less="fewer vector operations (narrow types to convert, expansions)", slots="vpu.alu_slots"),
    Unit(key=EUP, label="EUP", name="transcendental unit (EUP)", bound="EUP", colour="#D55E00", marker="D",
         less="fewer transcendentals", slots="vpu.eup_slots"),
    # Several cycles per operation, unlike the slots: openxla/xprof charges four on v6e.
    Unit(key=XLU, label="XLU", name="cross-lane unit (XLU)", bound="XLU", colour="#CC79A7", hatch="++", marker="P",
         less="fewer transposes and lane reductions", slots="vpu.xlu_units", op_cycles="vpu.xlu_cycles_per_op"),
    Unit(key=LOAD, label="vector load", short="load", bound="VMEM", colour="#F0E442", hatch="||||", marker="v",
         less="fewer loads from VMEM", slots="vpu.load_slots"),
    Unit(key=STORE, label="vector store", short="store", bound="VMEM", colour="#F0E442", hatch="||||", marker="v",
         less="fewer stores to VMEM", slots="vpu.store_slots"),
    Unit(key=VMEM, label="VMEM", bound="VMEM", colour="#F0E442", hatch="||||", marker="v",
         rate="dma.vmem_bytes_per_second"),
    Unit(key=HBM, label="HBM", bound="HBM", colour="#E69F00", is_shared=True,
         less="fewer bytes to and from HBM", rate="hbm.bandwidth_bytes_per_second", share="hbm.efficiency"),
    Unit(key=CMEM, label="CMEM", bound="CMEM", colour="#F0E442", hatch="xx", marker="<", is_shared=True,
         less="fewer bytes from CMEM", rate="cmem.read_bytes_per_second"),
    # Beside a kernel; what a step of its own on the scalar core takes is fixed.scalar_op_cycles.
    Unit(key=SCALAR, label="scalar core", short="scalar", bound="scalar", hatch="--", marker=".",
         less="fewer rows to address one by one", slots="fixed.scalar_slots"),
    Unit(key=SMEM, label="SMEM"),
    Unit(key=SYNC, label="sync flags"),
    Unit(key=ICI, label="ICI", bound="ICI", colour="#56B4E9", hatch="////", marker="X",
         rate="ici.links_bytes_per_second"),
    Unit(key=HOST, label="host", bound="host", colour="#000000", marker="*"),
    Unit(key=HOST_IN, label="from host", bound="host", colour="#000000", marker="*", is_shared=True,
         rate="host.bandwidth_bytes_per_second"),
    Unit(key=HOST_OUT, label="to host", bound="host", colour="#000000", marker="*", is_shared=True,
         rate="host.bandwidth_bytes_per_second"),
    Unit(key=OTHER, label="other"),
)  # fmt: skip

UNITS: Final[dict[str, Unit]] = {unit.key: unit for unit in _ROWS}
"""All of them by key."""

MEMORY_SPACES: Final[dict[int, MemorySpace]] = {
    number: space for number, label in layout.MEMORY_SPACES.items() for space in SPACES if UNITS[space].label == label
}
"""The memory that XLA writes as ``S(number)``."""


def counted_units() -> tuple[Unit, ...]:
    """Return the units whose operations a kernel's work counts."""
    return tuple(unit for unit in UNITS.values() if unit.counts_operations)


def mac_key(operand_type: str) -> str:
    """Return what the activity of a record calls multiply-accumulates of operands of a type."""
    return f"{MATRIX}.{operand_type}"


def event_key(activity: str) -> str:
    """Return what tables of energy call an event that an activity counts: ``matrix_bf16`` for ``matrix.bf16``."""
    return activity.replace(".", "_")


def unit_of(activity: str) -> str:
    """Return the unit that does what an activity counts."""
    return activity.partition(".")[0]


def peak_bytes_per_second(chip: Any, unit: Unit) -> float:
    """Return the advertised rate of a memory or of the links, 0 for what has none."""
    return chip_value(chip, unit.rate) if unit.rate else 0.0


# Asked for every kernel and every copy of a run.
_getter = cache(attrgetter)


def chip_value(chip: Any, key: str) -> float:
    """Return the value of a dotted key of a chip, such as ``vpu.alu_slots`` or ``units.sorter.slots``.

    Raises ConfigError for a unit that this chip does not have.
    """
    try:
        return float(_getter(key)(chip))
    except AttributeError:
        # A table in between, whose keys are open.
        value = stated_value(chip, key)
    if value is None:
        raise ConfigError(f"chip {chip.name!r}: expected {key!r} for work of that unit, found none")
    return float(value)


def stated_value(chip: Any, key: str) -> Any:
    """Return what a chip has for a dotted key, tables whose keys are open included; None for what it does not state."""
    value = chip
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return value
