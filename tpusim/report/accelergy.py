"""What a run did and what each of it takes as Accelergy's files: action counts, and tables of energy and area.

One file holds all three, as Accelergy takes it: ``accelergy FILE.yaml -f energy_estimation``. Energies are in
picojoules, areas in square micrometres. A component is a unit; its actions are ``op``, ``byte``, ``row``, or a type of
multiply-accumulates. What a device draws while nothing runs is its action ``cycle``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tpusim.analysis.energy.run import CYCLES
from tpusim.cost.area import area_by_unit
from tpusim.cost.energy import MEAN_ROWS
from tpusim.cost.models.energies import energy_model
from tpusim.files import write_whole
from tpusim.hardware.accelergy import CYCLE, DEVICE, action_of
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, HBM_ROWS, unit_of

_VERSION = 0.4
_PJ = 1e12
_UM2 = 1e6
_TOP = "tpu"


def write_accelergy(counts: Mapping[str, float], chip: Chip, path: str | Path) -> None:
    """Write the action counts of a run with the energies and areas of its chip. The same run gives the same bytes."""
    lines = [*_counts(counts), *_energies(counts, chip), *_areas(chip)]
    write_whole(path, "\n".join(lines) + "\n")


def _counts(counts: Mapping[str, float]) -> Iterator[str]:
    yield from ("action_counts:", f"  version: {_VERSION}", "  subtree:", f"    - name: {_TOP}", "      local:")
    for component, actions in _by_component(counts).items():
        yield from (f"        - name: {component}", "          action_counts:")
        for name, count in actions.items():
            yield from (f"            - name: {name}", f"              counts: {_number(count)}")


def _energies(counts: Mapping[str, float], chip: Chip) -> Iterator[str]:
    model = energy_model(chip)
    joules = dict(model.joules(chip))
    share = joules.pop(MEAN_ROWS, 0.0)
    # Where no row is counted, a byte takes its share of one.
    joules[HBM] = joules.get(HBM, 0.0) + (0.0 if HBM_ROWS in counts else share)
    joules[CYCLES] = model.idle_watts(chip) / chip.clock_hz
    yield from ("ERT:", f"  version: {_VERSION}", "  tables:")
    for component, actions in _by_component(joules).items():
        yield from (f"    - name: {_TOP}.{component}", "      actions:")
        for name, each in actions.items():
            yield f"        - name: {name}"
            yield from ("          arguments: {}", f"          energy: {_number(each * _PJ)}")


def _areas(chip: Chip) -> Iterator[str]:
    yield from ("ART:", f"  version: {_VERSION}", "  tables:")
    for component, mm2 in area_by_unit(chip).items():
        yield from (f"    - name: {_TOP}.{component}", f"      area: {_number(mm2 * _UM2)}")


def _by_component(figures: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return figures by component and action."""
    found: dict[str, dict[str, float]] = {}
    for key, figure in figures.items():
        component, action = (DEVICE, CYCLE) if key == CYCLES else (unit_of(key), action_of(key))
        found.setdefault(component, {})[action] = figure
    return found


def _number(number: float) -> str:
    """Return a number as YAML 1.1 reads one: with a point before the exponent."""
    text = repr(float(number))
    return text if "." in text else text.replace("e", ".0e")
