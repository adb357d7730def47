"""Fits what nobody published about the chips to measured times: all chips at once, as generations share hardware.

The search goes by ratios (logarithms), as latencies and rates differ by orders of magnitude. A row counts by how well
it is known: what a host's clock took is blurred by its jitter, and below a few times that says nothing. Every value
comes with an interval, from fits to rows drawn at random (bootstrap); one at the edge of its range is refused.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import copysign, exp, hypot, inf, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tpusim.analysis.accuracy import Fit, Fitted, errors_by_family
from tpusim.errors import ConfigError
from tpusim.files import is_file, parse_toml, read_text, read_toml, write_whole
from tpusim.hardware.edit import restate
from tpusim.hardware.fields import OPERATIONS, Fact
from tpusim.hardware.load import load_chip, override_chip
from tpusim.pipeline.stages import lower
from tpusim.validation.kernels import HOST_CLOCK, Case, generation_of, predict

if TYPE_CHECKING:
    from tpusim.analysis.accuracy import Outcome
    from tpusim.hardware.chip import Chip
    from tpusim.program.module import Program

_STEP = 0.03
"""Change of a parameter, as a share of it, by which a derivative is measured: small ones drown in rounding to ps."""
_OUTLIER = 0.05
"""Errors above this count linearly and not squared: clocks of hosts have outliers that a square would chase."""
_FAMILY_POWER = 0.25
"""Rows of a family of n count n to the power of minus this: many rows are of few kernels, and share their faults."""
_MOST_NOISE = 0.15
"""Rows that are blurred by more than this share of their time are left out."""
_DRAWS = 200
_SEARCHES = 12
_AT_EDGE = 1e-3
_APART = 1e-3
"""Of slopes of length 1: parameters are not told apart if some sum of them, of length 1 as well, is shorter."""


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A figure of one or more chips that is fitted: where the search begins, and the range in which it is plausible.

    The first of ``chips`` states it; the files of the others refer to it.
    """

    key: str
    chips: tuple[str, ...]
    start: float
    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse a range that holds no number; the search goes by ratios, for which there is none at 0."""
        if not 0 < self.low <= self.start <= self.high or self.low == self.high:
            raise ValueError(f"expected 0 < low <= start <= high, found {self.low:g}, {self.start:g} and {self.high:g}")
        if not self.chips:
            raise ValueError(f"{self.key}: expected the chips that have it, found none")
        if other := next((chip for chip in self.chips if Path(chip).name != chip), ""):
            raise ValueError(f"{self.key}: expected names of chips, found {other!r:.80}")


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is fitted. ``left_out`` names programs whose rows are no evidence, each with the reason."""

    parameters: tuple[Parameter, ...]
    host_clock_noise_us: float = 0.0
    left_out: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse what is fitted twice, and a noise that is no time."""
        fitted = Counter((parameter.key, chip) for parameter in self.parameters for chip in parameter.chips)
        if twice := next((one for one, count in fitted.items() if count > 1), None):
            raise ValueError(f"{twice[0]}: expected {twice[1]} once, found it in several parameters")
        if not 0 <= self.host_clock_noise_us < inf:
            raise ValueError(f"host_clock_noise_us: expected a time from 0 on, found {self.host_clock_noise_us}")


def read_plan(path: str | Path) -> Plan:
    """Return the plan of a file; raise ConfigError if it is none."""
    try:
        return msgspec.convert(read_toml(path, "cannot read this file of parameters"), Plan)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: not a file of parameters to fit: {error}") from error


def calibrate(plan: Plan, cases: Sequence[Case], folds: int = 5) -> Fit:
    """Fit the parameters of a plan on all rows of their chips.

    Raises ConfigError if a parameter has no rows or none that depends on it, if all rows tell the same of several, or
    if there are fewer shapes than folds.
    """
    own = [case for case in cases if _counts(case, plan)]
    shapes = sorted({case.shapes for case in own})
    if folds < 2:
        raise ConfigError(f"folds: expected at least 2, to predict each from the others, found {folds}")
    if len(shapes) < folds:
        raise ConfigError(f"expected rows of at least {folds} shapes, found {len(shapes)}")
    for parameter in plan.parameters:
        if not any(_has(parameter, case) for case in own):
            raise ConfigError(f"{parameter.key}: expected rows of {', '.join(parameter.chips)}, found none")
    search = _Search(plan, own)
    logs, slopes = search.solve([log(p.start) for p in plan.parameters], range(len(own)))
    _check_told_apart(plan.parameters, slopes[0])
    held_out: list[Outcome] = []
    # What lowering chooses by the arrays' figures jumps: near the fit it is taken as it is there.
    search.lowered_by = (OPERATIONS,)
    for fold in range(folds):
        # Dealt in turn from a sorted list: every fold has small and large ones, and no chance is involved.
        left_out = frozenset(shapes[fold::folds])
        kept = [at for at, case in enumerate(own) if case.shapes not in left_out]
        others, _ = search.solve(logs, kept, most=5)
        held_out += [search.outcome(at, others) for at, case in enumerate(own) if case.shapes in left_out]
    return Fit(
        parameters=tuple(search.described(logs, slopes)),
        sources=tuple(sorted({case.source for case in own if case.source})),
        fitted=errors_by_family([search.outcome(at, logs) for at in range(len(own))]),
        cross_validated=errors_by_family(held_out),
    )


def write_fit(fit: Fit, folder: str | Path) -> None:
    """Write the values of a fit into the chip files of a folder, each with what it rests on.

    Raises ConfigError, before anything is written, if a value stands at the edge of its range or a file is missing.
    """
    edges = [parameter.key for parameter in fit.parameters if parameter.at_edge]
    if edges:
        raise ConfigError(
            f"{', '.join(edges)}: at the edge of the range: no row says where it ends, so nothing is kept"
        )
    paths = {parameter.chips[0]: Path(folder) / f"{parameter.chips[0]}.toml" for parameter in fit.parameters}
    missing = [str(path) for path in paths.values() if not is_file(path)]
    if missing:
        raise ConfigError(f"expected the chip files to change, found no {', '.join(missing)}")
    texts = {path: _restated(path, [p for p in fit.parameters if p.chips[0] == chip]) for chip, path in paths.items()}
    for path, text in texts.items():
        write_whole(path, text)


def _restated(path: Path, parameters: Iterable[Fitted]) -> str:
    text = read_text(path, "cannot read this chip file")
    try:
        # What TOML Kit takes need not be what the chip is read by.
        parse_toml(text)
        for parameter in parameters:
            text = restate(text, _fact(parameter))
    except ValueError as error:
        raise ConfigError(f"{path}: expected a chip file in TOML: {error}") from error
    return text


def _fact(parameter: Fitted) -> Fact:
    also = f", for {', '.join(parameter.chips)} alike" if len(parameter.chips) > 1 else ""
    note = (
        f"By tpusim calibrate on {parameter.rows} rows{also}; nine in ten fits to rows drawn at random lie from "
        f"{parameter.least:.3g} to {parameter.most:.3g}; range {parameter.low:g} to {parameter.high:g}."
    )
    return Fact(parameter.key, parameter.value, "", "fitted", ", ".join(parameter.sources), note)


def _has(parameter: Parameter, case: Case) -> bool:
    return generation_of(case.chip) in parameter.chips


def _counts(case: Case, plan: Plan) -> bool:
    """Return whether a row says anything about a plan's parameters."""
    is_known = _noise(case, plan) <= _MOST_NOISE and case.path.name.partition(".")[0] not in plan.left_out
    return is_known and any(_has(parameter, case) for parameter in plan.parameters)


def _noise(case: Case, plan: Plan) -> float:
    return plan.host_clock_noise_us / case.measured_us if case.what == HOST_CLOCK else 0.0


class _Search:
    """The rows of a fit, their weights, and what has been lowered for them."""

    def __init__(self, plan: Plan, cases: Sequence[Case]) -> None:
        self.parameters, self.cases = plan.parameters, cases
        counts = Counter((case.chip, case.family) for case in cases)
        self.weights = [counts[case.chip, case.family] ** -_FAMILY_POWER for case in cases]
        self.blurs = [hypot(_OUTLIER, _noise(case, plan)) for case in cases]
        self.touched = [frozenset(at for at, case in enumerate(cases) if _has(p, case)) for p in plan.parameters]
        self._shipped = {case.chip: load_chip(case.chip) for case in cases}
        self._programs: dict[tuple[object, ...], Program] = {}
        self.lowered_by: tuple[str, ...] = (OPERATIONS, "mxu.")

    def chip(self, name: str, logs: Sequence[float]) -> Chip:
        """Return a chip with the parameters at a point."""
        generation = generation_of(name)
        pairs = zip(self.parameters, logs, strict=True)
        return override_chip(self._shipped[name], {p.key: _value(p, at) for p, at in pairs if generation in p.chips})

    def outcome(self, at: int, logs: Sequence[float]) -> Outcome:
        """Return what is predicted for a row at a point."""
        return self._predicted(at, self.chip(self.cases[at].chip, logs), logs)

    def _predicted(self, at: int, chip: Chip, logs: Sequence[float]) -> Outcome:
        # Lowering is what takes long, and only these change what it chooses and counts.
        pairs = zip(self.parameters, logs, strict=True)
        key = (at, *(value for p, value in pairs if p.key.startswith(self.lowered_by) and _has(p, self.cases[at])))
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = lower(self.cases[at].module, chip)
        return predict(self.cases[at], chip, found)

    def errors(self, logs: Sequence[float], rows: Sequence[int]) -> Iterator[float]:
        """Yield the weighted and damped errors of some rows."""
        chips = {name: self.chip(name, logs) for name in {self.cases[at].chip for at in rows}}
        for at in rows:
            outcome = self._predicted(at, chips[self.cases[at].chip], logs)
            error = outcome.predicted_us / outcome.measured_us - 1
            yield self.weights[at] * _damped(error / self.blurs[at])

    def solve(self, begin: Sequence[float], rows: Sequence[int], most: int = _SEARCHES) -> tuple[list[float], Any]:
        """Return the point of the least squares of some rows, and the slopes of their errors there."""
        np, least_squares = _libraries()
        bounds = [[log(p.low) - 1e-9 for p in self.parameters], [log(p.high) + 1e-9 for p in self.parameters]]

        def residuals(logs: Any) -> Any:
            return np.array(list(self.errors(logs, rows)))

        def slopes(logs: Any) -> Any:
            """A row that a parameter is not about need not be predicted again."""
            base, found = residuals(logs), np.zeros((len(rows), len(self.parameters)))
            for number, parameter in enumerate(self.parameters):
                step = _STEP if logs[number] + _STEP < log(parameter.high) else -_STEP
                moved = [*logs[:number], logs[number] + step, *logs[number + 1 :]]
                places = [place for place, at in enumerate(rows) if at in self.touched[number]]
                changed = np.array(list(self.errors(moved, [rows[place] for place in places])))
                found[places, number] = (changed - base[places]) / step
            return found

        found = least_squares(residuals, begin, jac=slopes, bounds=bounds, max_nfev=most)
        return list(found.x), (found.jac, found.fun)

    def _sources(self, generation: str) -> tuple[str, ...]:
        """Return who published the rows of a chip, without the places there."""
        found = {case.source.partition(",")[0] for case in self.cases if generation_of(case.chip) == generation}
        return tuple(sorted(found - {""}))

    def described(self, logs: Sequence[float], slopes: Any) -> Iterator[Fitted]:
        """Yield the parameters of a fit to all rows with their intervals."""
        draws = _draws(*slopes)
        for number, (parameter, at) in enumerate(zip(self.parameters, logs, strict=True)):
            spread = sorted(draw[number] for draw in draws)
            yield Fitted(
                key=parameter.key,
                chips=parameter.chips,
                value=float(f"{_value(parameter, at):.4g}"),
                least=_value(parameter, at + spread[_DRAWS // 20]),
                most=_value(parameter, at + spread[-1 - _DRAWS // 20]),
                low=parameter.low,
                high=parameter.high,
                rows=len(self.touched[number]),
                sources=self._sources(parameter.chips[0]),
                at_edge=min(at - log(parameter.low), log(parameter.high) - at) < _AT_EDGE,
            )


def _check_told_apart(parameters: Sequence[Parameter], slopes: Any) -> None:
    """Refuse parameters of which any value fits as well as another, alone or if others go along."""
    np, _ = _libraries()
    lengths = np.linalg.norm(slopes, axis=0)
    if unseen := [p.key for p, length in zip(parameters, lengths, strict=True) if not length]:
        raise ConfigError(f"{unseen[0]}: expected rows whose time depends on it, found none")
    units = slopes / lengths
    sizes, directions = np.linalg.eigh(units.T @ units)
    weak = abs(directions[:, sizes < _APART**2]).max(axis=1, initial=0)
    if alike := [p.key for p, part in zip(parameters, weak, strict=True) if part > _APART]:
        raise ConfigError(f"{', '.join(alike)}: expected rows that tell them apart, found none: fit fewer of them")


def _draws(slopes: Any, errors: Any) -> list[list[float]]:
    """Return how far the fits to rows drawn at random lie from that to all of them, each by one step of Newton's."""
    np, _ = _libraries()
    chance = random.Random(0)
    found = []
    for _ in range(_DRAWS):
        rows = chance.choices(range(len(errors)), k=len(errors))
        found.append(list(np.linalg.lstsq(slopes[rows], -errors[rows], rcond=1e-6)[0]))
    return found


def _libraries() -> tuple[Any, Any]:
    # SciPy is an extra: only fits need it.
    try:
        import numpy as np
        from scipy.optimize import least_squares
    except ImportError as error:
        raise ConfigError("calibrate needs SciPy: pip install 'tpusim[calibrate]'") from error
    return np, least_squares


def _damped(error: float) -> float:
    """Return what, squared, is about the square of a small error and about twice a large one (the soft L1 loss)."""
    return copysign(sqrt(2 * (sqrt(1 + error * error) - 1)), error)


def _value(parameter: Parameter, at: float) -> float:
    """Return a parameter from its logarithm, not outside its range by a rounding error."""
    return min(parameter.high, max(parameter.low, exp(at)))
