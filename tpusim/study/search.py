"""The machines of a study that no other one beats in several figures, searched for instead of listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.fields import whole_where_due
from tpusim.study.axes import Axis, Setting
from tpusim.study.points import Point, base_digests, is_allowed, merged, points_at
from tpusim.study.programs import digest
from tpusim.study.spec import Spec
from tpusim.study.store import TRIALS, version
from tpusim.study.study import Study
from tpusim.study.table import Row, rows_of, written_row
from tpusim.study.work import registrations

OBJECTIVES = ("time_us", "energy_j", "all_devices_energy_j", "average_power_w", "area_mm2", "cost_usd")
"""Columns that a search can make small."""

_BATCH = 24
"""Machines that are tried before the sampler hears of any of them: workers have enough to do."""


def search(study: Study, objectives: Sequence[str], trials: int, seed: int = 0) -> list[Row]:
    """Return a row for each machine tried: what it is, its figures, and whether it is on the front of those found.

    Axes with values are choices, ranges without a number of points (``{log = [low, high]}``) are searched between their
    ends. Of several programs a figure is the geometric mean. What one of them does not fit on, or constraints exclude,
    has no figures. Optuna samples (NSGA-II), and keeps its trials beside the study's outcomes: the same search goes on
    until there are so many. Raises ConfigError without Optuna, for an unknown figure, and for samples as an axis.
    """
    for name in objectives:
        if name not in OBJECTIVES:
            hint = did_you_mean(name, OBJECTIVES)
            raise ConfigError(f"optimise: expected some of {', '.join(OBJECTIVES)}, found {name!r}{hint}")
    optuna = _optuna()
    found = _trials(optuna, study, objectives)
    while (done := len(_ended(found))) < trials:
        # With another seed each time: one that has begun again must not draw what it drew before.
        found.sampler = optuna.samplers.NSGAIISampler(seed=seed + done)
        asked = [found.ask() for _ in range(min(_BATCH, trials - done))]
        settings = [merged(_choice(axis, trial) for axis in study.spec.axes) for trial in asked]
        for trial, figures in zip(asked, _figures(study, settings, objectives), strict=True):
            trial.set_user_attr("figures", figures)
            if figures is None:
                found.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                found.tell(trial, figures)
    best = {trial.number for trial in found.best_trials}
    return [_row(study, trial, objectives, trial.number in best) for trial in _ended(found)]


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("--optimise needs Optuna: pip install 'tpusim[study]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def key_of(spec: Spec, objectives: Sequence[str]) -> str:
    """Return what a search's trials are kept under: all that their figures follow from."""
    programs = [(program.digest, program.variables, *registrations(program)) for program in spec.programs]
    derive = sorted((key, expression.text) for key, expression in spec.derive.items())
    constraints = [expression.text for expression in spec.constraints]
    rules = derive, constraints, spec.settings
    return digest(repr((version(), programs, base_digests(spec), spec.axes, rules, list(objectives))).encode())


def _trials(optuna: Any, study: Study, objectives: Sequence[str]) -> Any:
    """Return Optuna's study, the one of before where there is one whose figures follow from the same."""
    folder = study.folder
    return optuna.create_study(
        storage=f"sqlite:///{folder / TRIALS}" if folder else None,
        study_name=key_of(study.spec, objectives),
        directions=["minimize"] * len(objectives),
        load_if_exists=True,
    )


def _ended(found: Any) -> list[Any]:
    """Return the trials that have come to something; one whose process was killed never does."""
    return [trial for trial in found.trials if trial.state.is_finished()]


def _choice(axis: Axis, trial: Any) -> Setting:
    """Return what a trial takes of an axis."""
    if axis.settings:
        number: int = trial.suggest_categorical(axis.name, range(len(axis.settings)))
        return axis.settings[number]
    assert axis.range
    value = trial.suggest_float(axis.name, axis.range.low, axis.range.high, log=axis.range.is_log)
    return {axis.name: whole_where_due(axis.name, value)}


def _figures(study: Study, settings: Sequence[Setting], objectives: Sequence[str]) -> list[list[float] | None]:
    """Return the figures of each setting, None where it has none."""
    spec = study.spec
    points = [
        [point for program in spec.programs for point in points_at(spec, program, [one]) if is_allowed(spec, point)]
        for one in settings
    ]
    flat = [point for some in points for point in some]
    rows = iter(rows_of(flat, study.outcomes(flat)))
    return [_means([next(rows) for _ in some], some, objectives) for some in points]


def _means(rows: Sequence[Mapping[str, Any]], points: Sequence[Point], objectives: Sequence[str]) -> list[float] | None:
    if not points or any(row["status"] != "ok" or not all(row[name] for name in objectives) for row in rows):
        return None
    return [geometric_mean(row[name] for row in rows) for name in objectives]


def _row(study: Study, trial: Any, objectives: Sequence[str], is_best: bool) -> Row:
    chosen = {
        key: value
        for axis in study.spec.axes
        for key, value in (
            axis.settings[trial.params[axis.name]] if axis.settings else {axis.name: trial.params[axis.name]}
        ).items()
    }
    figures = trial.user_attrs.get("figures") or [None] * len(objectives)
    found = {"trial": trial.number, **chosen, **dict(zip(objectives, figures, strict=True)), "front": is_best}
    return written_row(found)
