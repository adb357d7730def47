"""What is written into machines and stands beside programs: parameters to fit, the files that fits change, facts."""

from __future__ import annotations

import json
import tomllib
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from tests.robust.contract import Wrong, surface
from tests.robust.mutations import encoded, mutated_text, mutated_tree
from tests.robust.programs import linked
from tests.robust.surfaces.hlo import check_result
from tests.robust.surfaces.machines import mutated_toml
from tpusim.analysis.accuracy import Fit, Fitted
from tpusim.errors import ConfigError
from tpusim.pipeline.stages import simulate
from tpusim.validation.calibration import Parameter, read_plan, write_fit

_PLAN = """host_clock_noise_us = 1.5

[[parameters]]
key = "hbm.efficiency"
chips = ["v5e", "v6e"]
start = 0.9
low = 0.5
high = 1.0

[[parameters]]
key = "vector_ops.unpack.f16.vector"
chips = ["v4"]
start = 2
low = 1
high = 60

[left_out]
a = "a slip"
"""

_CHIPS = (
    'base = "v5e"\nclock_hz = 1.6e9\n\n[mxu]\nrows = 256 # twice\n\n[hbm]\nefficiency = 0.5\nlatency_seconds = 1e-7\n',
    'base = "v5e"\nhbm.latency_seconds = 1e-7\nmxu = { rows = 256, count = 8 }\n',
    '[hbm]\nefficiency = { value = 0.9, confidence = "fitted", source = "a", note = """\n  b \\\n  c""" }\n'
    "[pod]\nchips = 4\n",
)


def _toml(random: Random, texts: tuple[str, ...]) -> bytes:
    text = random.choice(texts)
    return encoded(mutated_text(random, text) if random.random() < 0.6 else mutated_toml(random, text))


def _fit(parameters: tuple[Parameter, ...]) -> Fit:
    """Return a fit that came to the values at which the search began."""
    found = tuple(
        Fitted(
            key=one.key,
            chips=one.chips,
            value=one.start,
            least=one.low,
            most=one.high,
            low=one.low,
            high=one.high,
            rows=3,
            sources=("a",),
            at_edge=False,
        )
        for one in parameters
    )
    return Fit(parameters=found, sources=("a",), fitted={}, cross_validated={})


def _stated(table: Any, key: str) -> Any:
    """Return what stands in nested tables under a dotted key."""
    for word in key.split("."):
        table = table[word]
    return table


@surface("plan", lambda random: _toml(random, (_PLAN,)), 2)
def take_plan(content: bytes, folder: Path) -> None:
    """Read what is to be fitted, and write values for it into the files of its chips."""
    path = folder / "plan.toml"
    path.write_bytes(content)
    parameters = read_plan(path).parameters
    for chip in ("v5e", "v6e", "v4"):
        (folder / f"{chip}.toml").write_text(_CHIPS[0])
    write_fit(_fit(parameters), folder)
    for one in parameters:
        stated = _stated(tomllib.loads((folder / f"{one.chips[0]}.toml").read_text()), one.key)
        if abs(stated["value"] / one.start - 1) > 1e-5:
            raise Wrong(f"{one.key}: {stated['value']} written for {one.start}")


_ONE = Parameter(key="hbm.efficiency", chips=("v5e",), start=0.75, low=0.5, high=1.0)


def _shown(value: Any) -> str:
    """Return a value as text, in any order of keys; integers may have more digits than Python prints."""
    if isinstance(value, dict):
        return str(sorted((key, _shown(inner)) for key, inner in value.items()))
    if isinstance(value, list):
        return str([*map(_shown, value)])
    return f"{type(value).__name__} {hex(value) if isinstance(value, int) else repr(value)}"


@surface("refit", lambda random: _toml(random, _CHIPS), 2)
def take_refit(content: bytes, folder: Path) -> None:
    """Write a value into the file of a chip, of which nothing else may change."""
    path = folder / "v5e.toml"
    path.write_bytes(content)
    try:
        write_fit(_fit((_ONE,)), folder)
    except ConfigError:
        if path.read_bytes() != content:
            raise Wrong("a file that was refused is another") from None
        raise
    before, after = tomllib.loads(content.decode()), tomllib.loads(path.read_text())
    found, wanted = deepcopy(after), deepcopy(before)
    value = found["hbm"].pop("efficiency")["value"]
    wanted.setdefault("hbm", {}).pop("efficiency", None)
    # As texts: nan is not itself.
    if value != _ONE.start or _shown(found) != _shown(wanted):
        raise Wrong(f"{_shown(before)} has become {_shown(after)}")


_FACTS = {"chip": "v5e", "compiler": "libtpu 0.0.41", "program": "mlp", "sizes": [1024, {"hidden": 4096}], "more": 1.5}


def _facts(random: Random) -> bytes:
    tree = json.dumps(mutated_tree(random, _FACTS))
    return encoded(mutated_text(random, tree) if random.random() < 0.5 else tree)


@surface("facts", _facts, 2)
def take_facts(content: bytes, folder: Path) -> None:
    """Run a program whose name does not say the chip, by the facts beside it."""
    program = linked(folder, "mlp.hlo.txt.gz", "traces/mlp_b1024.v5e.hlo.txt.gz")
    program.with_name("mlp.json").write_bytes(content)
    check_result(simulate(program, allow_overflow=True))
