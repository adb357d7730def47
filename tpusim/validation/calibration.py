"""Fitting of what is not published about a chip: named parameters, against measured times, by least squares.

The error that is stated beside a fit is cross-validated: the rows are dealt into folds by shape, and each fold is
predicted with parameters that were fitted on the others.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from math import copysign, exp, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tpusim.analysis.accuracy import Fit, Outcome, errors_by_family
from tpusim.errors import ConfigError
from tpusim.hardware.edit import restate
from tpusim.hardware.fields import Fact
from tpusim.hardware.load import load_chip, override_chip
from tpusim.validation.kernels import predict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpusim.hardware.chip import Chip
    from tpusim.validation.kernels import Case

_STEP = 0.03
"""Change of a parameter, as a share of it, by which a derivative is measured: small ones drown in rounding to ps."""
_OUTLIER = 0.1
"""Log errors above this count linearly and not squared: clocks of hosts have outliers that a square would chase."""


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of a chip that is fitted: where the search begins, and the range in which it is plausible."""

    start: float
    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse a range that holds no number; the search goes by ratios, for which there is none at 0."""
        if not 0 < self.low <= self.start <= self.high or self.low == self.high:
            raise ValueError(f"expected 0 < low <= start <= high, found {self.low:g}, {self.start:g} and {self.high:g}")


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is fitted for one chip: parameters by dotted key, and the families of rows that they are fitted on."""

    parameters: dict[str, Parameter]
    families: list[str] = []
    # A chip that is another one with a few figures changed has most of its fits in that one's file.
    states: str = ""


def read_plans(path: str | Path) -> dict[str, Plan]:
    """Return the plans of a file by chip; raise ConfigError if it is none."""
    try:
        return msgspec.convert(tomllib.loads(Path(path).read_text(encoding="utf-8")), dict[str, Plan])
    except OSError as error:
        raise ConfigError(f"{path}: cannot read this file of parameters: {error.strerror}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: not a file of parameters to fit: {error}") from error


def calibrate(chip_name: str, plan: Plan, cases: Sequence[Case], folds: int = 5) -> Fit:
    """Fit the parameters of a plan on the rows of its chip and families.

    Raises ConfigError if there are no such rows, or fewer shapes than folds.
    """
    own = [c for c in cases if c.chip == chip_name and (not plan.families or c.family in plan.families)]
    shapes = sorted({case.shapes for case in own})
    if folds < 2:
        raise ConfigError(f"folds: expected at least 2, to predict each from the others, found {folds}")
    if len(shapes) < folds:
        raise ConfigError(f"{chip_name}: expected rows of at least {folds} shapes, found {len(shapes)}")
    chip = load_chip(chip_name)
    values = _fitted(chip, plan, own)
    held_out: list[Outcome] = []
    for fold in range(folds):
        # Dealt in turn from a sorted list: every fold has small and large ones, and no chance is involved.
        left_out = frozenset(shapes[fold::folds])
        others = _fitted(chip, plan, [case for case in own if case.shapes not in left_out], start=values)
        changed = override_chip(chip, others)
        held_out += [predict(case, changed) for case in own if case.shapes in left_out]
    changed = override_chip(chip, values)
    return Fit(
        chip=chip_name,
        values=values,
        sources=tuple(sorted({case.source for case in own if case.source})),
        fitted=errors_by_family([predict(case, changed) for case in own]),
        cross_validated=errors_by_family(held_out),
    )


def write_fit(fit: Fit, path: str | Path) -> None:
    """Write the values of a fit into a chip file, each with what it was fitted on and how well it predicts."""
    text = Path(path).read_text(encoding="utf-8")
    errors = ", ".join(f"{family} {a.mape:.1%} of {a.count} rows" for family, a in fit.cross_validated.items())
    note = f"By tpusim calibrate; mean absolute error, cross-validated by shape: {errors}."
    for key, value in fit.values.items():
        text = restate(text, Fact(key, value, "", "fitted", ", ".join(fit.sources), note))
    Path(path).write_text(text, encoding="utf-8")


def _fitted(
    chip: Chip, plan: Plan, cases: Sequence[Case], start: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return the parameters that make the sum of the damped squares of log errors least; families count the same."""
    # SciPy is an extra: only fits need it.
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise ConfigError("calibrate needs SciPy: pip install 'tpusim[calibrate]'") from error
    names = list(plan.parameters)
    ranges = [plan.parameters[name] for name in names]
    begin = [log(min(r.high, max(r.low, (start or {}).get(n, r.start)))) for n, r in zip(names, ranges, strict=True)]
    counts = Counter(case.family for case in cases)
    weights = [counts[case.family] ** -0.5 for case in cases]

    def residuals(logs: Any) -> list[float]:
        """Return the weighted log errors at a point."""
        changed = override_chip(chip, _values(names, ranges, logs))
        errors = (log(o.predicted_us / o.measured_us) for o in (predict(case, changed) for case in cases))
        return [weight * _damped(error / _OUTLIER) for weight, error in zip(weights, errors, strict=True)]

    bounds = ([log(r.low) - 1e-9 for r in ranges], [log(r.high) + 1e-9 for r in ranges])
    # Logs, so that a latency and a rate are steps of one size.
    found = least_squares(residuals, begin, bounds=bounds, diff_step=_STEP, max_nfev=12)
    return {name: float(f"{value:.4g}") for name, value in _values(names, ranges, found.x).items()}


def _damped(error: float) -> float:
    """Return what, squared, is about the square of a small error and about twice a large one (the soft L1 loss)."""
    return copysign(sqrt(2 * (sqrt(1 + error * error) - 1)), error)


def _values(names: Sequence[str], ranges: Sequence[Parameter], logs: Any) -> dict[str, float]:
    """Return parameters by name from their logarithms, none outside its range by a rounding error."""
    points = zip(names, ranges, logs, strict=True)
    return {name: min(limits.high, max(limits.low, exp(value))) for name, limits, value in points}
