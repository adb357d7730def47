"""Axes: what a study varies, as lists of settings, each a value for one key or for several at once."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.fields import parse_value, unit_fault, whole_where_due
from tpusim.limits import DIMENSIONS, POINTS, SEED

Setting = dict[str, Any]
"""Values by key, some of them still factors of what the base has."""

_FORMS = ("log", "lin", "zip", "sample")
_SAMPLE = ("sample", "n", "seed", "keys")


@dataclass(frozen=True)
class Range:
    """Where a value is searched for: from ``low`` to ``high``, along a logarithm if ``is_log``."""

    low: float
    high: float
    is_log: bool

    def at(self, share: float) -> float:
        """Return the value a share (0 to 1) of the way from low to high."""
        if not self.is_log:
            return self.low + share * (self.high - self.low)
        # Not by logarithms, so that the ends come out as they were written.
        return self.high if share == 1 else self.low * (self.high / self.low) ** share


@dataclass(frozen=True)
class Axis:
    """One axis: its name and its settings; or, for searches alone, the ``range`` of its key."""

    name: str
    settings: tuple[Setting, ...]
    range: Range | None = None

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """What it sets."""
        # Asked of each of thousands of points.
        return tuple(dict.fromkeys(key for setting in self.settings for key in setting)) or (self.name,)


def read_axis(name: str, written: Any) -> Axis:
    """Return an axis from what a study says of it.

    A list, an array or a ``range`` has its values, or tables of keys that go together (``mxu = [{rows = 128, count =
    8}, ...]``). A table is ``{log = [low, high, n]}``, ``{lin = [low, high, n]}``, ``{zip = {key = [...], key =
    [...]}}`` or ``{sample = "sobol", n = 256, keys = {key = {log = [low, high]}, key = [...]}}``. Raises ConfigError.
    """
    if isinstance(written, Mapping):
        forms = written.keys() & set(_FORMS)
        if len(forms) != 1:
            hint = did_you_mean(next(iter(written), ""), _FORMS)
            raise ConfigError(f"axis {name}: expected one of {', '.join(_FORMS)}, found {', '.join(written)!r}{hint}")
        return _READERS[forms.pop()](name, written)
    plain = _plain(written)
    values = list(plain) if isinstance(plain, Iterable) and not isinstance(plain, str | bytes) else [plain]
    if not values:
        raise ConfigError(f"axis {name}: expected at least one value, found none")
    return Axis(name, tuple(_setting(name, value) for value in values))


def _setting(name: str, value: Any) -> Setting:
    given = {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
    return {key: _figure(name, key, one) for key, one in given.items()}


def _figure(name: str, key: str, value: Any) -> Any:
    """Return the value of a key as it is read on an axis; one in another unit than the key's is refused."""
    plain = _plain(value)
    if fault := unit_fault(key, plain):
        raise ConfigError(f"axis {name}: {key}: {fault}")
    return parse_value(plain)


def _plain(value: Any) -> Any:
    """Return an array of NumPy as lists, and a number of it as one of Python; all else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _range_axis(name: str, written: Mapping[str, Any]) -> Axis:
    (form, bounds) = next(iter(written.items()))
    # How many there are of them, the third number, has no unit either way.
    numbers = [_figure(name, name, bound) for bound in bounds] if isinstance(bounds, list | tuple) else []
    if len(written) != 1 or len(numbers) not in (2, 3) or not all(map(_is_real, numbers)):
        raise ConfigError(f"axis {name}: expected {{{form} = [low, high, n]}}, found {dict(written)!r}")
    low, high, *count = numbers
    if form == "log" and not (low > 0 and high > 0):
        raise ConfigError(f"axis {name}: expected bounds above 0 of a logarithmic range, found {low} and {high}")
    found = Range(low, high, form == "log")
    if not count:
        return Axis(name, (), found)
    n = count[0]
    fault = POINTS.fault(n) if isinstance(n, int) else f"expected {POINTS.what}, found {n!r}"
    if fault:
        raise ConfigError(f"axis {name}: {fault}")
    values = [found.at(i / max(1, n - 1)) for i in range(n)]
    if not all(map(math.isfinite, values)):
        raise ConfigError(f"axis {name}: expected values that a float holds from {low} to {high}, found {max(values)}")
    return Axis(name, tuple({name: value} for value in dict.fromkeys(whole_where_due(name, v) for v in values)), found)


def _is_real(value: Any) -> bool:
    """Return whether a value is a number that a float can hold."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max


def _zip_axis(name: str, written: Mapping[str, Any]) -> Axis:
    lists = written["zip"]
    if len(written) != 1 or not isinstance(lists, Mapping) or not lists:
        raise ConfigError(f"axis {name}: expected {{zip = {{key = [...], key = [...]}}}}, found {dict(written)!r}")
    axes = [read_axis(key, values).settings for key, values in lists.items()]
    if len({len(settings) for settings in axes}) != 1:
        raise ConfigError(f"axis {name}: expected lists of one length, found {[len(settings) for settings in axes]}")
    return Axis(name, tuple({k: v for one in row for k, v in one.items()} for row in zip(*axes, strict=True)))


def _sample_axis(name: str, written: Mapping[str, Any]) -> Axis:
    for key in written:
        if key not in _SAMPLE:
            raise ConfigError(f"axis {name}: unknown key {key!r}{did_you_mean(key, _SAMPLE)}")
    n, keys = written.get("n"), written.get("keys")
    if written["sample"] != "sobol" or not isinstance(n, int) or n < 1 or not isinstance(keys, Mapping) or not keys:
        expected = '{sample = "sobol", n = 256, keys = {key = {log = [low, high]}, ...}}'
        raise ConfigError(f"axis {name}: expected {expected}, found {dict(written)!r}")
    seed = written.get("seed", 0)
    if not isinstance(seed, int):
        raise ConfigError(f"axis {name}: seed: expected a whole number, found {seed!r}")
    for fault in (POINTS.fault(n), DIMENSIONS.fault(len(keys)), SEED.fault(seed)):
        if fault:
            raise ConfigError(f"axis {name}: {fault}")
    inner = [read_axis(key, values) for key, values in keys.items()]
    rows = sobol(len(inner), n, seed)
    return Axis(name, tuple(_drawn(inner, row) for row in rows))


def _drawn(axes: Sequence[Axis], shares: Sequence[float]) -> Setting:
    """Return the setting at a point of the unit cube, one side of it for each axis."""
    found: Setting = {}
    for axis, share in zip(axes, shares, strict=True):
        if axis.range:
            found[axis.name] = whole_where_due(axis.name, axis.range.at(share))
        else:
            found |= axis.settings[min(int(share * len(axis.settings)), len(axis.settings) - 1)]
    return found


def sobol(dimensions: int, n: int, seed: int) -> list[list[float]]:
    """Return n points of a scrambled Sobol sequence in the unit cube. Raises ConfigError without SciPy."""
    try:
        from scipy.stats import qmc
    except ImportError as error:
        raise ConfigError("samples of a study need SciPy: pip install 'tpusim[study]'") from error
    points: list[list[float]] = qmc.Sobol(dimensions, seed=seed).random_base2(math.ceil(math.log2(n)))[:n].tolist()
    return points


_READERS = {"log": _range_axis, "lin": _range_axis, "zip": _zip_axis, "sample": _sample_axis}
