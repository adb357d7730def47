"""The JSON Schema of what every command prints."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tpusim.errors import ConfigError, did_you_mean
from tpusim.program.module import Program
from tpusim.report.json.accuracy import CompiledPage, EstimatesPage, PowerPage, StepsPage
from tpusim.report.json.answers import ExplanationPage, LongestPage, PathPage, StepPage
from tpusim.report.json.compile import CompilationPage
from tpusim.report.json.facts import ChipPage, ChipRow, LayoutPage, OpcodeRow
from tpusim.report.json.memory import MemoryAccuracyPage, MemoryPage
from tpusim.report.json.model import AccuracyPage, SystolicPage
from tpusim.report.json.page import Microseconds
from tpusim.report.json.run import ComparisonPage, RunPage
from tpusim.report.json.sweep import SweepPage

_PAGES: Final[dict[str, tuple[Any, ...]]] = {
    "run": (RunPage,),
    "compile": (CompilationPage,),
    "check": (list[str],),
    "layout": (LayoutPage,),
    "chips": (list[ChipRow], ChipPage),
    "ops": (list[OpcodeRow],),
    "memory": (MemoryPage,),
    "diff": (ComparisonPage,),
    "lower": (Program,),
    "explain": (ExplanationPage, StepPage, LongestPage),
    "path": (PathPage,),
    "validate": (AccuracyPage, MemoryAccuracyPage, EstimatesPage, CompiledPage, StepsPage, PowerPage),
    "systolic": (SystolicPage,),
    "sweep": (SweepPage,),
}
"""By command what it prints; some print one thing or another by their options."""


def schemas(command: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema of what a command prints, of all by command if none is named.

    Raises ConfigError if the command prints no JSON.
    """
    if command is None:
        return {name: schemas(name) for name in _PAGES}
    if command not in _PAGES:
        hint = did_you_mean(command, _PAGES)
        raise ConfigError(f"schema: expected a command that prints JSON, found {command!r}{hint}")
    found, components = msgspec.json.schema_components(
        _PAGES[command], schema_hook=_schema, ref_template="#/$defs/{name}"
    )
    own = found[0] if len(found) == 1 else {"anyOf": list(found)}
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"tpusim {command}"}
    return dialect | own | ({"$defs": components} if components else {})


def _schema(kind: type) -> dict[str, Any]:
    assert kind is Microseconds
    return {"type": "number", "description": "microseconds"}
