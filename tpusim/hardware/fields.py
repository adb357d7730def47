"""What each key of a chip file may hold: its type, its unit and the range outside which a value must be a slip; and
how values are written: numbers with prefixes (``16Mi``, ``819G``), factors (``x2``), truths and texts.

The keys and types are read off ``Chip``, the units off the ends of the keys, so that a new field needs no line here
unless its range is special. The ranges say nothing about any chip: they are wide enough for machines yet to be
built and narrow enough to catch GB/s, MHz, us or GiB written where SI units are expected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

import msgspec

from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.chip import Chip, Setting
from tpusim.hardware.units import (
    CMEM,
    HBM,
    HBM_ROWS,
    ICI,
    MATRIX,
    OTHER,
    SMEM,
    UNITS,
    VECTOR,
    VMEM,
    counted_units,
    event_key,
    mac_key,
)

_PREFIXES = {
    **{f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTP", 1)},
    **{letter: 10 ** (3 * power) for power, letter in enumerate("kMGTP", 1)},
    **{letter: 10 ** (-3 * power) for power, letter in enumerate("mun", 1)},
}
# Patterns that hardly any run asks for are texts: what asks has them compiled.
_MOST_DIGITS = 200
_NUMBER = (
    r"(?P<sign>[-+]?)(?P<digits>[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)"
    rf" ?(?P<prefix>{'|'.join(_PREFIXES)})?"
    r"(?P<unit>B/s|B|Hz|s)?"
)

CONFIDENCE = ("published", "second-hand", "derived", "measured", "estimated", "fitted")
"""How far a number can be trusted; ``estimated`` and ``fitted`` owe a note that says how and on what."""

TEXT_KEYS = frozenset({"name", "aliases", "description", "operating_point"})
"""Keys that are no claim about silicon and so need no source."""

WRAP_RULES = ("length16", "cube4", "always")

_REPORT_ONLY = frozenset(
    {
        "year",
        # The links that take part follow from the axes of the slice; this is their peak.
        "ici.links",
        # A host's clock has more on it than the device's time.
        "host.dispatch_seconds",
        # Of a slice's name, which is read before any chip is changed.
        "pod.counted_per_chip",
    }
)

OPERAND_TYPES = (
    *("f32", "f16", "bf16", "s8", "u8", "s4", "u4"),
    *("f8e5m2", "f8e5m2fnuz", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz", "f8e3m4", "f4e2m1fn"),
)
"""Element types, in XLA's spelling, that a matrix unit can have a rate for."""

# The one table whose keys are open: which types have a rate differs from chip to chip.
_RATES = "mxu.rate_by_type"
OPERATIONS = "vector_ops"
"""The table of operations has a file of its own, shared by the chips."""

# vector_ops.unpack.f16.vector: the table, the operation or type, the unit.
_OPERATION_COST = re.compile(rf"{OPERATIONS}\.(ops|moves|unpack|pack)\.[\w-]+\.(\w+)")

AREA_UNITS = (MATRIX, VECTOR, VMEM, CMEM, HBM, ICI, OTHER)
"""What has a place on the die, by unit; all else is ``other``."""

# units.sorter.slots: a unit that only some chips have.
_UNIT_RATE = r"units\.(\w+)\.(slots|cycles_per_op|fill)"

# hbm.settings.channels: what the model of a unit is made with, which only the model knows.
_SETTING = r"(mxu|vpu|hbm|dma|ici|power)\.settings\.[a-z]\w*"

# devices.3.clock: a device that is slower than its fellows; ici.link_factors.3:+0: a link that is.
_FACTOR = r"devices\.[0-9]+\.(clock|hbm)|ici\.link_factors\.[0-9]+:([+-]|>)[0-9]+"

_ABOVE_ZERO = 1e-9
_HOST = re.compile(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){0,7}")


class Fact(msgspec.Struct, frozen=True):
    """One quantity of a chip with its unit, how far it can be trusted, where it is from, and why it is so."""

    key: str
    value: Any
    unit: str
    confidence: str
    source: str
    note: str
    is_report_only: bool = False
    """Whether pages and comparisons show it but no simulated time, and no figure of memory or energy, depends on it."""


class _Range(msgspec.Struct, frozen=True):
    """A unit with its plausible range, inclusive and in words."""

    unit: str
    low: float
    high: float
    expected: str


class Field(msgspec.Struct, frozen=True):
    """One key: the type of its value, its unit with the plausible range, and whether all chips have it.

    ``default`` is what those have that do not.
    No time, memory or energy depends on one that ``is_report_only``: a test changes every other one.
    """

    key: str
    kind: Any
    range: _Range
    is_required: bool = True
    is_report_only: bool = False
    default: Any = None


# Lower bounds of sizes catch figures in GiB, MiB or KiB, upper ones a slip of the exponent.
_BY_KEY = {
    "power.node_nm": _Range("nm", 1, 100, "nanometres, 1 to 100"),
    "power.supply_ratio": _Range("", 0.1, 10, "a ratio from 0.1 to 10"),
    "power.idle_watts": _Range("W", 0, 1e5, "watts, from 0"),
    "year": _Range("year", 2000, 2200, "a year from 2000 to 2200"),
    "hbm.capacity_bytes": _Range("B", 2**20, 2**60, "bytes, at least 1 MiB (16 GiB is 17_179_869_184)"),
    "hbm.reserved_bytes": _Range("B", 0, 2**60, "bytes, from 0"),
    "vmem.capacity_bytes": _Range("B", 2**12, 2**50, "bytes, at least 4 KiB (16 MiB is 16_777_216)"),
    "cmem.capacity_bytes": _Range("B", 0, 2**50, "bytes, 0 where there is none"),
    "cmem.read_bytes_per_second": _Range("B/s", 0, 1e18, "bytes per second, 0 where there is no CMEM"),
    "cmem.write_bytes_per_second": _Range("B/s", 0, 1e18, "bytes per second, 0 where there is no CMEM"),
    "hbm.turn_cost": _Range("", 0, 10, "bytes for a byte, from 0 to 10"),
    "dma.issue_cycles": _Range("cycles", 0, 2**30, "cycles, from 0"),
    "dma.chunk_cost_bytes": _Range("B", 0, 2**30, "bytes, from 0"),
    "ici.links": _Range("", 0, 64, "a whole number from 0 to 64"),
    "ici.dimensions": _Range("", 0, 8, "a whole number from 0 to 8"),
    "pod.host": _Range("", 0, 0, "chips along each axis, such as 2x2x1"),
    "ici.wrap": _Range("", 0, 0, " or ".join(map(repr, WRAP_RULES))),
}
# No ending here is the end of another one, so their order does not matter.
_BY_ENDING = {
    "_bytes_per_second": _Range("B/s", 1e6, 1e18, "bytes per second, 1e6 to 1e18 (819 GB/s is 819e9)"),
    "_rows_per_cycle": _Range("rows/cycle", _ABOVE_ZERO, 2**20, "rows per cycle, above 0"),
    "_registers_per_cycle": _Range("registers/cycle", _ABOVE_ZERO, 2**20, "registers per cycle, above 0"),
    "_cycles_per_op": _Range("cycles", _ABOVE_ZERO, 1e9, "cycles, above 0"),
    "_cycles": _Range("cycles", 0, 1e9, "cycles, from 0"),
    "_seconds": _Range("s", 0, 0.1, "seconds, from 0 to 0.1 (1 us is 1e-6)"),
    "_bytes": _Range("B", 1, 2**60, "bytes, from 1"),
    "_hz": _Range("Hz", 1e6, 1e12, "hertz, 1e6 to 1e12 (1.5 GHz is 1.5e9)"),
    "efficiency": _Range("", _ABOVE_ZERO, 1, "a share above 0 and at most 1"),
    "_share": _Range("", _ABOVE_ZERO, 1, "a share above 0 and at most 1"),
}
_COUNT = _Range("", 1, 2**30, "a whole number from 1")
_UNIT_RANGES = {
    "slots": _Range("ops/cycle", _ABOVE_ZERO, 2**20, "operations per cycle, above 0"),
    "cycles_per_op": _BY_ENDING["_cycles_per_op"],
    "fill": _BY_ENDING["_cycles"],
}
_COST = _Range("ops/register", 0, 1e6, "operations per register, from 0")
_OF_RATE = _Range("", _ABOVE_ZERO, 1024, "a multiple of the rate of the others, above 0")
_ANY = _Range("", -math.inf, math.inf, "a number, true, false or a text")
_RATE = _Range("x bf16", _ABOVE_ZERO, 1024, "a multiple of the bf16 rate, above 0")


def check_key(key: Any, where: str) -> None:
    """Refuse what is no text, which a mapping of a script may have for a key; what it names is for ``field_of``."""
    if not isinstance(key, str):
        raise ConfigError(f"{where}: expected a key of the chip such as 'clock_hz', found {key!r:.80}")


def field_of(key: str, where: str) -> Field:
    """Return what ``key`` (dotted: ``hbm.efficiency``) may hold; raise ConfigError with the nearest known key."""
    if key in FIELDS:
        return FIELDS[key]
    if cost := _OPERATION_COST.fullmatch(key):
        units = [unit.key for unit in counted_units()]
        if cost[2] not in units:
            raise ConfigError(f"{where}: {key!r}: expected one of {', '.join(units)} at its end, found {cost[2]!r}")
        return Field(key, float, _COST)
    section, _, element_type = key.rpartition(".")
    if section == _RATES and element_type in OPERAND_TYPES:
        return Field(key, float, _RATE)
    if (rate := re.fullmatch(_UNIT_RATE, key)) and rate[1] in UNITS:
        return Field(key, float, _UNIT_RANGES[rate[2]])
    if re.fullmatch(_FACTOR, key):
        return Field(key, float, _OF_RATE, is_required=False)
    if re.fullmatch(_SETTING, key):
        return Field(
            key, Setting, _Range("", -math.inf, math.inf, "a number, true, false or a text"), is_required=False
        )
    if section in _OPEN:
        kind = _OPEN[section]
        if element_type not in kind.names:
            hint = did_you_mean(element_type, kind.names)
            raise ConfigError(f"{where}: {key!r}: expected {section}. and one of {', '.join(kind.names)}{hint}")
        return Field(key, float, kind.range)
    raise ConfigError(f"{where}: unknown key {key!r}{_nearest(key)}; `tpusim chips NAME` lists all keys")


def energy_activities() -> tuple[str, ...]:
    """Return what has an energy, as the activity of a record names it."""
    # Where values lie without moving takes none: flags, the host's own memory.
    units = (unit.key for unit in UNITS.values() if unit.counts_operations or unit.rate or unit.key == SMEM)
    return (*map(mac_key, OPERAND_TYPES), *units, HBM_ROWS)


class _Open(msgspec.Struct, frozen=True):
    """A table of figures of a chip's own: its keys, and the range of its values."""

    names: tuple[str, ...]
    range: _Range


_OPEN = {
    "energy": _Open(
        tuple(map(event_key, energy_activities())),
        _Range("J", 0, 1e-6, "joules of one event, 0 to 1e-6 (1 pJ is 1e-12)"),
    ),
    "area": _Open(AREA_UNITS, _Range("mm2", 0, 1e6, "square millimetres, from 0")),
}


class Factor(msgspec.Struct, frozen=True):
    """How many times what the base chip has."""

    by: float

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"x{self.by:g}"


def parse_value(text: Any) -> Any:
    """Return what a text says: a number, a ``Factor``, true or false, else the text; what is none comes back."""
    if not isinstance(text, str):
        return text
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("x") and (by := re.fullmatch(_NUMBER, text[1:])):
        return Factor(float(_number(by)))
    found = re.fullmatch(_NUMBER, text)
    return _number(found) if found else text


def _number(found: re.Match[str]) -> int | float:
    """Return a number, whole where it is written so and its prefix leaves it so."""
    times: int | float = _PREFIXES.get(found["prefix"] or "", 1)
    digits = found["sign"] + found["digits"].replace("_", "")
    # No figure comes near what a float can hold, and Python reads and prints no number of thousands of digits.
    is_whole = not re.search(r"[.eE]", digits) and len(digits) < _MOST_DIGITS
    return (int(digits) if is_whole else float(digits)) * times


def unit_fault(key: str, value: Any) -> str:
    """Return what is wrong with the unit that a figure is written in; nothing of one without, or in that of its key.

    What a key of a model's own is counted in nobody knows here.
    """
    if not isinstance(value, str) or key not in FIELDS:
        return ""
    stated, unit = re.fullmatch(_NUMBER, value.removeprefix("x")), FIELDS[key].range.unit
    if not stated or not stated["unit"] or (stated["unit"] == unit and not value.startswith("x")):
        return ""
    return f"expected {FIELDS[key].range.expected}, found {value!r}"


def read_value(key: str, value: Any, before: Any, where: str) -> Any:
    """Return the value of a chip's key, in the key's own type; texts are read, a factor is of what was ``before``.

    What a factor comes to is rounded where the key holds whole numbers alone. Raises ConfigError, which begins with
    ``where``, with the nearest known key, or with what the key may hold.
    """
    field = field_of(key, where)
    if fault := unit_fault(key, value):
        raise ConfigError(f"{where}: {key}: {fault}")
    value = parse_value(value)
    if isinstance(value, Factor):
        if isinstance(before, bool) or not isinstance(before, (int, float)):
            raise ConfigError(f"{where}: {key}: expected a value, since the base has {before!r}, found a factor")
        value = whole_where_due(key, before * value.by)
    # 8.0 arrays are 8: quotients that come out whole are no slips.
    if field.kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    return check_value(field, value, where)


def whole_where_due(key: str, value: float) -> float:
    """Return the nearest whole number where a key of the chip holds only such: of factors, and along ranges."""
    is_due = key in FIELDS and FIELDS[key].kind is int
    return round(value) if is_due and math.isfinite(value) else value


def check_value(field: Field, value: Any, where: str) -> Any:
    """Return ``value`` in the field's own type; raise ConfigError if it is of another type or not plausible."""
    # Python counts True as the number 1; a chip file that says so has a slip.
    is_stray_truth = isinstance(value, bool) and field.kind not in (bool, Setting)
    checked = None if is_stray_truth else _CHECKS[field.kind](field, value)
    is_number = isinstance(checked, (int, float))
    if checked is None or (is_number and not field.range.low <= checked <= field.range.high):
        raise ConfigError(f"{where}: {field.key}: expected {field.range.expected}, found {value!r}")
    return checked


def _whole(field: Field, value: Any) -> int | None:
    """Accept a whole number; 32e9 too where the unit is bytes, since that is how sizes are written."""
    if isinstance(value, Integral):
        return int(value)
    is_size = field.range.unit == "B" and isinstance(value, float) and value.is_integer()
    return int(value) if is_size else None


def _real(field: Field, value: Any) -> float | None:
    """Accept a finite number that a float holds."""
    with suppress(OverflowError):
        return float(value) if isinstance(value, Real) and math.isfinite(value) else None
    return None


def _text(field: Field, value: Any) -> str | None:
    """Accept a non-empty text, of the wrap rules only those that exist, and of hosts only sizes."""
    if field.key == "ici.wrap":
        return value if value in WRAP_RULES else None
    if field.key == "pod.host":
        return value if isinstance(value, str) and _HOST.fullmatch(value) else None
    return value if isinstance(value, str) and value else None


def _texts(field: Field, value: Any) -> tuple[str, ...] | None:
    """Accept a list of texts; a text stands for a list of those between its commas, as an override gives them."""
    value = value.split(",") if isinstance(value, str) else value
    is_list = isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    return tuple(value) if is_list else None


_CHECKS: dict[Any, Callable[[Field, Any], Any]] = {
    int: _whole,
    float: _real,
    bool: lambda field, value: value if isinstance(value, bool) else None,
    str: _text,
    tuple[str, ...]: _texts,
    Setting: lambda field, value: value if isinstance(value, Setting) else None,
}


def _range_of(key: str, kind: Any) -> _Range:
    """Return unit and range of a key: by its own entry, by its ending, else by its type."""
    if key in _BY_KEY:
        return _BY_KEY[key]
    by_type = {int: _COUNT, bool: _Range("", 0, 1, "true or false"), str: _Range("", 0, 0, "a text")}
    endings = (found for ending, found in _BY_ENDING.items() if key.endswith(ending))
    return next(endings, by_type.get(kind, _Range("", 0, 0, "a list of texts")))


def _fields_of(struct: Any, prefix: str = "") -> Iterator[Field]:
    """Yield the fields of a struct and of the structs in it, in their order, with dotted keys."""
    for info in msgspec.structs.fields(struct):
        key = prefix + info.name
        if key in (OPERATIONS, "units", "energy", "area", "devices") or info.name in ("settings", "link_factors"):
            continue
        if isinstance(info.type, type) and issubclass(info.type, msgspec.Struct):
            yield from _fields_of(info.type, f"{key}.")
        elif key != _RATES:
            default = None if info.required else info.default
            yield Field(key, info.type, _range_of(key, info.type), info.required, key in _REPORT_ONLY, default)


FIELDS: dict[str, Field] = {field.key: field for field in _fields_of(Chip)}
"""All fixed keys; ``mxu.rate_by_type`` has one more for each of ``OPERAND_TYPES``."""


def _worked_out(struct: Any, prefix: str = "") -> Iterator[str]:
    """Yield what a struct, and the structs in it, work out of their fields, with dotted keys."""
    yield from (prefix + name for name, one in vars(struct).items() if isinstance(one, property))
    for info in msgspec.structs.fields(struct):
        if isinstance(info.type, type) and issubclass(info.type, msgspec.Struct):
            yield from _worked_out(info.type, f"{prefix}{info.name}.")


def worked_out() -> frozenset[str]:
    """Return what can be asked of a chip by key, and follows from other keys, such as ``peak_flops_per_second``."""
    return frozenset(_worked_out(Chip))


def _nearest(key: str) -> str:
    """Return a hint at the nearest known key, or else at those of the same first word or the same section."""
    # All keys are long and alike, so that likeness alone would send a slip in one section to another one.
    known = [*FIELDS, *(f"{_RATES}.{name}" for name in OPERAND_TYPES)]
    section, _, last = key.rpartition(".")
    siblings = [other for other in known if other.rpartition(".")[0] == section]
    hint = did_you_mean(key, siblings) or did_you_mean(key, known)
    if hint:
        return hint
    word = last.split("_")[0]
    same_word = [other for other in known if other.rpartition(".")[2].split("_")[0] == word]
    inside = [other for other in known if other.startswith(f"{key}.")]
    return f" (known: {', '.join((same_word or inside or siblings or known)[:6])})"
