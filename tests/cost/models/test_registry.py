"""A chip's file names what stands for a unit, and its code runs only where the caller has allowed its package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tpusim.cost.models.arrays import ARRAYS, array_of
from tpusim.cost.models.choice import REGISTRIES, check_models
from tpusim.cost.models.registry import Registry, allow_plugin, allowed_plugins
from tpusim.errors import ConfigError
from tpusim.hardware.load import chip_names, load_chip, override_chip, parse_override
from tpusim.hardware.reads import Reads
from tpusim.pipeline.stages import simulate

ROOT = Path(__file__).parents[3]
PROGRAM = str(ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz")
MINE = """
from pathlib import Path
Path({mark!r}).write_text("ran")
from tpusim.cost.models.arrays import OutputStationary
class Mine(OutputStationary):
    pass
"""


def run(*options: str, folder: Path | None = None):
    """Run the command line on a program, with a folder of a user's packages."""
    command = [sys.executable, "-m", "tpusim", "run", PROGRAM, "--quiet", *options]
    return subprocess.run(
        command, env={"PYTHONPATH": f"{ROOT}:{folder}", "PATH": ""}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("chip_name", chip_names())
def test_every_chip_has_its_models(chip_name):
    """Those that ship, without a word in its file."""
    check_models(load_chip(chip_name))


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.key)
def test_an_unknown_name_is_refused_with_those_that_there_are(registry):
    """And with the nearest of them."""
    name = registry.names[0]
    chip = override_chip(load_chip("v5e"), {registry.key: f"{name}x"})
    with pytest.raises(ConfigError, match=rf"{registry.key}: expected one of .*{name}.*did you mean {name!r}"):
        check_models(chip)


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.key)
def test_a_setting_that_no_model_takes_is_refused(registry):
    """It says what the model takes."""
    chip = override_chip(load_chip("v5e"), {f"{registry.section}.settings.nonsense": 1})
    with pytest.raises(ConfigError, match=rf"{registry.section}.settings: .* takes .*; found nonsense"):
        check_models(chip)


def test_a_name_with_a_colon_can_be_an_override():
    """``-o mxu.model=mypackage.mxu:Mine``."""
    assert parse_override("mxu.model=mypackage.mxu:Mine") == ("mxu.model", "mypackage.mxu:Mine")


def test_the_same_settings_make_one_model():
    """A chip is made anew for every run; what its models have worked out stays."""
    assert array_of(load_chip("v5e")) is array_of(load_chip("v6e"))


def test_a_chip_file_alone_runs_no_code(tmp_path):
    """The message says what to pass, and nothing of the package has run."""
    mark = tmp_path / "mark"
    (tmp_path / "minepackage.py").write_text(MINE.format(mark=str(mark)))
    (tmp_path / "my.toml").write_text('base = "v5e"\n[mxu]\nmodel = "minepackage:Mine"\n')
    refused = run("--chip", str(tmp_path / "my.toml"), folder=tmp_path)
    assert refused.returncode == 1
    assert "--plugin minepackage" in refused.stderr
    assert not mark.exists()


def test_an_allowed_package_is_loaded(tmp_path):
    """Its class prices products."""
    mark = tmp_path / "mark"
    (tmp_path / "minepackage.py").write_text(MINE.format(mark=str(mark)))
    options = ("-o", "mxu.model=minepackage:Mine", "--plugin", "minepackage", "--json")
    own = json.loads(run(*options, folder=tmp_path).stdout)
    shipped = json.loads(run("-o", "mxu.model=output-stationary", "--json").stdout)
    assert mark.exists()
    assert own.pop("changed") == {"mxu.model": "minepackage:Mine"}
    assert own == {key: value for key, value in shipped.items() if key != "changed"}


@pytest.mark.parametrize("name", ["no_such_unit", "no_such_unit.arrays", "json.decoder.arrays", "json.arrays"])
def test_a_plugin_that_is_not_there_is_refused(name):
    """Also where no chip names it: it was to change something."""
    refused = run("--plugin", name)
    assert refused.returncode == 1
    assert repr(name) in refused.stderr
    assert "is it installed or on PYTHONPATH?" in refused.stderr


@pytest.mark.parametrize("name", ["", "a-b", "a:b", "a..b", "../a"])
def test_a_plugin_is_a_package(name):
    """Not a path, and not a class."""
    with pytest.raises(ConfigError, match="plugin: expected the name of a package"):
        allow_plugin(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json:Nothing", "Nothing"),
        ("json.nothing:Mine", "nothing"),
        ("json:JSONDecoder", "expected a class with work, cycles"),
        ("jsonmore:Mine", "--plugin jsonmore"),
    ],
)
def test_what_is_no_model_is_refused(name, message):
    """No such module, no such class, not the methods; and a longer name is another package."""
    allow_plugin("json")
    assert "json" in allowed_plugins()
    with pytest.raises(ConfigError, match=message):
        ARRAYS.of(override_chip(load_chip("v5e"), {"mxu.model": name}).mxu)


def test_settings_go_to_the_constructor():
    """By name, and other settings make another model."""
    registry = Registry("mxu.model")

    @registry.enter("one")
    class One:
        def __init__(self, *, width: int) -> None:
            self.width = width

    chips = [override_chip(load_chip("v5e"), {"mxu.model": "one", "mxu.settings.width": n}) for n in (3, 4, 3)]
    models = [registry.of(chip.mxu) for chip in chips]
    assert [model.width for model in models] == [3, 4, 3]
    assert models[0] is models[2]


@pytest.mark.parametrize(
    ("over", "keys"),
    [
        ({"hbm.model": "banked", "hbm.settings.channels": 8}, ("hbm.model", "hbm.settings")),
        ({"mxu.model": "output-stationary"}, ("mxu.model", "mxu.settings")),
        ({"devices.0.clock": 0.5}, ("clock_hz", "devices")),
    ],
    ids=str,
)
def test_what_models_read_of_a_chip_is_noted(over, keys):
    """A study takes an outcome for that of another chip where all that was read is the same."""
    chip = load_chip("v5e", over)
    reads = Reads(chip)
    assert simulate(PROGRAM, reads.chip).timeline.total_ps == simulate(PROGRAM, chip).timeline.total_ps
    assert reads.keys >= set(keys)
