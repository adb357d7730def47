"""How far predicted times are from measured ones, and our figures of memory from the compiler's own."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import median

import msgspec


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of predictions, as shares of the measured values.

    ``mape`` is the mean absolute error, ``bias`` the mean signed one (above 0: predicted too long), ``p90`` what nine
    in ten stay below, ``tau`` Kendall's rank correlation (its variant b, which passes over ties).
    """

    count: int
    mape: float
    bias: float
    p90: float
    tau: float


def accuracy(predicted: Sequence[float], measured: Sequence[float]) -> Accuracy:
    """Return the errors of ``predicted`` against ``measured``: at least one pair, measured values above 0."""
    errors = [(p - m) / m for p, m in zip(predicted, measured, strict=True)]
    sizes = sorted(abs(error) for error in errors)
    return Accuracy(
        count=len(errors),
        mape=sum(sizes) / len(sizes),
        bias=sum(errors) / len(errors),
        p90=sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        tau=kendall_tau(predicted, measured),
    )


def mean_error(outcomes: Sequence[Outcome]) -> float:
    """Return the mean absolute error of all rows, each counting the same."""
    return sum(abs(o.predicted_us / o.measured_us - 1) for o in outcomes) / len(outcomes)


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's tau-b of two rankings: 1 for the same order, -1 for the reverse, 0 if either is all ties."""
    both = ties_first = ties_second = 0
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        for j in range(i):
            x, y = a - first[j], b - second[j]
            both += (x * y > 0) - (x * y < 0)
            ties_first += x == 0
            ties_second += y == 0
    pairs = len(first) * (len(first) - 1) // 2
    ranked = sqrt((pairs - ties_first) * (pairs - ties_second))
    return both / ranked if ranked else 0.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One row with what was predicted for it, in microseconds; ``compiler_us`` is 0 where there is no estimate.

    ``units`` are the shares of the predicted time that the busiest units work, ``bound_by`` what it went to;
    ``estimates`` say of each kernel that no rule gave a time how it was estimated instead.
    """

    program: str
    chip: str
    family: str
    measured_us: float
    predicted_us: float
    compiler_us: float
    roofline_us: float
    bound_by: str
    units: dict[str, float]
    estimates: tuple[str, ...] = ()


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """Predictions beside measured times: every row, and the errors by predictor (ours the first) and family.

    ``mean_error`` is over ``all`` rows, each counting the same; of collectives also of predictions that were fitted
    with the row or its source left out (``row_held_out``, ``source_held_out``). ``rows_at_floor`` is how many rows were
    left out, since what was measured is the launch of a program and little more.
    """

    rows: tuple[Outcome, ...]
    families: dict[str, dict[str, Accuracy]]
    mean_error: dict[str, float]
    rows_at_floor: int = 0


def validation(rows: Sequence[Outcome], rows_at_floor: int = 0, **held_out: Sequence[Outcome]) -> Validation:
    """Return the errors of some rows and, beside their mean, that of the same rows with something held out."""
    return Validation(
        rows=tuple(rows),
        families=errors_by_predictor(rows),
        mean_error={what: mean_error(found) for what, found in ({"all": rows} | held_out).items() if found},
        rows_at_floor=rows_at_floor,
    )


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter that was fitted, of one or more chips: the first states it.

    ``least`` to ``most`` hold nine in ten fits to rows drawn at random, ``low`` to ``high`` is the range that was
    allowed, ``rows`` are those of its chips, and ``sources`` those of the first one's.
    """

    key: str
    chips: tuple[str, ...]
    value: float
    least: float
    most: float
    low: float
    high: float
    rows: int
    sources: tuple[str, ...]
    at_edge: bool


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A fit: its parameters, and the errors by family, on the rows themselves and cross-validated."""

    parameters: tuple[Fitted, ...]
    sources: tuple[str, ...]
    fitted: dict[str, Accuracy]
    cross_validated: dict[str, Accuracy]


PREDICTORS = {"tpusim": "predicted_us", "compiler": "compiler_us", "roofline": "roofline_us"}
"""Whose predictions are compared, by the field of ``Outcome`` that holds them."""


def errors_by_predictor(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Accuracy]]:
    """Return the errors of every predictor by family."""
    return {name: errors_by_family(outcomes, field) for name, field in PREDICTORS.items()}


def errors_by_family(outcomes: Sequence[Outcome], field: str = "predicted_us") -> dict[str, Accuracy]:
    """Return the errors of one predictor (a field of ``Outcome``) by family, where it predicts anything."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for outcome in outcomes:
        value = getattr(outcome, field)
        if value > 0:
            predicted, measured = found.setdefault(outcome.family, ([], []))
            predicted.append(value)
            measured.append(outcome.measured_us)
    return {family: accuracy(*pairs) for family, pairs in sorted(found.items())}


LEAST_BYTES = 2**20
"""Temporaries up to this are left out of the errors: a few tables of tuples decide over them."""


class MemoryOutcome(msgspec.Struct, frozen=True):
    """A program's HBM temporaries in bytes, as we and as the compiler count them; ``heap_bytes`` is our heap alone."""

    program: str
    chip: str
    temp_bytes: int
    compiler_temp_bytes: int
    heap_bytes: int = 0

    @property
    def error(self) -> float | None:
        """Ours against the compiler's, above 0 if ours are more; None if the compiler needs none."""
        if not self.compiler_temp_bytes:
            return None
        return self.temp_bytes / self.compiler_temp_bytes - 1

    @property
    def is_counted(self) -> bool:
        """Whether the program has enough temporaries for its error to say something."""
        return self.compiler_temp_bytes > LEAST_BYTES


class MemoryAccuracy(msgspec.Struct, frozen=True):
    """Errors over all programs that are counted; ``worst`` is the name of the one with the largest."""

    count: int
    median_error: float
    worst_error: float
    worst: str


def memory_accuracy(outcomes: Sequence[MemoryOutcome]) -> MemoryAccuracy:
    """Return the absolute errors of the programs with more than 1 MiB of temporaries."""
    errors = [(abs(o.error or 0.0), o.program) for o in outcomes if o.is_counted]
    worst = max(errors, default=(0.0, ""))
    return MemoryAccuracy(len(errors), median(error for error, _ in errors) if errors else 0.0, *worst)
