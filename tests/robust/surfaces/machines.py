"""Machines: chip files, figures replaced on the command line, slices, studies, Accelergy's tables."""

from __future__ import annotations

import json
import math
import tomllib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.robust.contract import Wrong, check_text, pick, surface
from tests.robust.grammar import CHIP, NAME, STUDY, TOPOLOGY, sentences
from tests.robust.mutations import NUMBERS, encoded, mutated_text, mutated_tree
from tests.robust.programs import ROOT, linked
from tests.robust.surfaces.hlo import check_result
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.hardware.accelergy import read_tables
from tpusim.hardware.fields import FIELDS
from tpusim.hardware.load import chip_facts, load_chip, parse_override
from tpusim.hardware.pod import make_pod, parse_topology
from tpusim.ir.module import Module
from tpusim.pipeline.stages import load, simulate
from tpusim.report.json.facts import chip_page
from tpusim.study.points import points_of
from tpusim.study.spec import read_spec

_PROGRAMS = ("mlp_b1024.v5e", "sampler_v32000.v6e", "sort_kv_1m.v5e")
_NAMES = ("v2", "v3", "v4", "v4-megacore", "v5e", "v5p", "v6e", "v7x")


@cache
def _modules() -> tuple[Module, ...]:
    found = [load(ROOT / "traces" / f"{name}.hlo.txt.gz") for name in _PROGRAMS]
    return (*found, load(ROOT / "tests" / "data" / "hlo" / "allreduce_4m.v5e_2x4.hlo.txt.gz"))


def figure_text(random: Random) -> str:
    """Return a figure of a chip as an override would give it."""
    factor = f"x{random.choice(('0', '0.001', '0.5', '2', '1000', '1e300'))}"
    word = random.choice(("true", "false", "length16", "always", "cube4", "2x2", "1x1", "0x0", "banked", '"x"'))
    return random.choice((random.choice(NUMBERS), factor, factor, word, str(random.randrange(1, 300))))


def figure_key(random: Random) -> str:
    """Return the key of a figure of a chip, which the chip need not have."""
    odd = (
        "devices.3.clock",
        "ici.link_factors.3:+0",
        "units.sorter.slots",
        "hbm.settings.banks",
        "energy.hbm",
        "area.x",
    )
    return random.choice((*FIELDS, *odd, "mxu.rate_by_type.s8", "vector_ops.ops.add.vector"))


@cache
def _settings() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return the models that ship and take settings, by section, with the names of these."""
    sections = tomllib.loads((ROOT / "configs" / "models.toml").read_text())
    return tuple(
        (section, model, tuple(taken))
        for section, models in sections.items()
        for model, taken in models.items()
        # It asks for a package that is not here.
        if model != "ramulator"
    )


def _of_models(random: Random) -> bytes:
    """Return a model of a section, with some of its settings."""
    section, model, names = random.choice(_settings())
    number = random.choice((lambda: random.choice(NUMBERS), lambda: f"{random.uniform(0, 40):.2g}", lambda: "true"))
    lines = [f"{section}.settings.{random.choice(names)}={number()}" for _ in range(random.choice((1, 1, 2, 3)))]
    return encoded("\n".join([f"{section}.model={model}", *lines]))


def _overrides(random: Random) -> bytes:
    if random.random() < 0.2:
        return _of_models(random)
    return encoded("\n".join(f"{figure_key(random)}={figure_text(random)}" for _ in range(random.choice((1, 1, 2, 3)))))


@surface("overrides", _overrides, 12)
def take_overrides(content: bytes, folder: Path) -> None:
    """Run a program on a chip with figures replaced."""
    overrides = dict(parse_override(line) for line in content.decode("utf-8", "surrogatepass").split("\n"))
    module = _modules()[pick(content, len(_modules()))]
    chip = load_chip(_NAMES[pick(content, len(_NAMES))], overrides)
    check_result(simulate(module, chip, allow_overflow=True))


@cache
def _chip_texts() -> tuple[str, ...]:
    shipped = tuple((ROOT / "configs" / f"{name}.toml").read_text() for name in _NAMES)
    small = 'base = "v5e"\nclock_hz = 1.6e9\n[mxu]\nrows = 256\ncount = 8\n[hbm]\nbandwidth_bytes_per_second = 1.2e12\n'
    other = 'base = "v4"\nname = "x"\n[pod]\nhost = "2x2x1"\nchips = 64\n[ici]\ndimensions = 2\nwrap = "always"\n'
    return (*shipped, *(small, other) * 4)


def _chip(random: Random) -> bytes:
    """Return the file of a chip: a shipped one or of few keys, damaged, or of any keys."""
    if random.random() < 0.5:
        return sentences(CHIP)(random)
    text = random.choice(_chip_texts())
    return encoded(mutated_text(random, text) if random.random() < 0.5 else mutated_toml(random, text))


@surface("chip", _chip, 8)
def take_chip(content: bytes, folder: Path) -> None:
    """Read a chip's file, print it, and run a program on it."""
    path = folder / "case.toml"
    path.write_bytes(content)
    chip = load_chip(path)
    chip_page(chip, chip_facts(path))
    check_result(simulate(_modules()[pick(content, len(_modules()))], chip, allow_overflow=True))


@surface("topology", sentences(TOPOLOGY), 4)
def take_topology(content: bytes, folder: Path) -> None:
    """Read the name of a slice and build it."""
    topology = parse_topology(content.decode("utf-8", "surrogatepass"))
    pod = make_pod(topology, load_chip(topology.chip or "v5p"))
    if pod.device_count < 1 or not 0 <= pod.chip_of(pod.device_count - 1) < pod.chip_count:
        raise Wrong(f"{pod.device_count} devices on {pod.chip_count} chips")


_STUDIES = (
    'programs = ["mlp_b1024.v5e.hlo.txt.gz"]\nbase = "v5e"\n[axes]\n"mxu.count" = [1, 2, 4]\n'
    '"hbm.bandwidth_bytes_per_second" = { log = ["400G", "3T", 8] }\n[constraints]\narea_mm2 = "<= 700"\n',
    'programs = ["*_b{batch}.v5e.hlo.txt.gz"]\nwarm = true\n[axes]\nbatch = [1024]\nchip = ["v5e", "v6e"]\n'
    "mxu = [{ rows = 128, count = 8 }, { rows = 256, count = 2 }]\n"
    '[derive]\n"hbm.capacity_bytes" = "mxu.count * 2 ** 30"\n',
    'programs = "sort_kv_1m.v5e.hlo.txt.gz"\nschedule = ["given", "compiled"]\n[axes]\nboth = { zip = '
    '{ clock_hz = ["x1", "x2"], "hbm.efficiency" = [0.5, 0.9] } }\ns = { sample = "sobol", n = 4, keys = '
    '{ "hbm.latency_seconds" = { lin = [1e-7, 1e-6] } } }\n',
)


def _study(random: Random) -> bytes:
    """Return the file of a study: one of a few, its text or what it says damaged, or of any axes."""
    if random.random() < 0.5:
        return sentences(STUDY)(random)
    text = random.choice(_STUDIES)
    return encoded(mutated_text(random, text) if random.random() < 0.5 else mutated_toml(random, text))


def mutated_toml(random: Random, text: str) -> str:
    """Return TOML that says something else, such as a list for a table."""
    tree = mutated_tree(random, tomllib.loads(text))
    return "\n".join(f"{json.dumps(key)} = {_toml(value)}" for key, value in tree.items()) if tree else ""


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps("none" if value is None else value)


@surface("study", _study, 4)
def take_study(content: bytes, folder: Path) -> None:
    """Read the file of a study and make its points."""
    for name in _PROGRAMS:
        linked(folder, f"{name}.hlo.txt.gz", f"traces/{name}.hlo.txt.gz")
    path = folder / "case.toml"
    path.write_bytes(content)
    spec = read_spec(path)
    if math.prod(max(1, len(axis.settings)) for axis in spec.axes) <= 1000:
        points_of(spec)


_TABLES = (
    "ERT:\n  version: 0.4\n  tables:\n  - name: tpu.hbm\n    actions:\n"
    "    - name: byte\n      arguments: {}\n      energy: 40.5\n"
    "  - name: tpu.matrix[0..3]\n    actions:\n    - name: bf16\n      energy: 0.4\n"
    "ART:\n  version: 0.4\n  tables:\n  - name: tpu.vmem\n    area: 1000000.5\n",
)


_TREE = {
    "ERT": {"tables": [{"name": "tpu.hbm", "actions": [{"name": "byte", "arguments": {}, "energy": 40.5}]}]},
    "ART": {"tables": [{"name": "tpu.vmem", "area": 1000000.5}]},
}


def _tables(random: Random) -> bytes:
    """Return Accelergy's tables, their text or what they say damaged; YAML is JSON as well."""
    if random.random() < 0.5:
        return encoded(mutated_text(random, random.choice(_TABLES)))
    return encoded(json.dumps(mutated_tree(random, _TREE)))


@surface("energy", _tables, 2)
def take_energy(content: bytes, folder: Path) -> None:
    """Read Accelergy's tables as figures of a chip."""
    path = folder / "case.yaml"
    path.write_bytes(content)
    load_chip("v5e", read_tables(path))


@surface("names", sentences(NAME), 2)
def take_name(content: bytes, folder: Path) -> None:
    """Find a chip by its name."""
    try:
        load_chip(content.decode("utf-8", "surrogatepass"))
    except (ConfigError, UnsupportedError) as error:
        check_text(str(error))
        raise
