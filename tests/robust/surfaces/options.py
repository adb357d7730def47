"""Command lines, as ``main`` takes them: any command with any of its options and values."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from functools import cache
from pathlib import Path
from random import Random

from tests.robust.contract import Wrong, check_text, pick, surface
from tests.robust.mutations import NUMBERS, WORDS
from tests.robust.programs import linked
from tpusim.cli.main import COMMANDS, main
from tpusim.cli.plot import plot
from tpusim.errors import TpusimError

# Fits and searches take their time by what they are asked for.
_LEFT_OUT = ("calibrate", "sweep", "validate")
_INPUTS = (
    "mlp.v5e.hlo.txt.gz",
    "sort.v5e.hlo.txt.gz",
    "missing.hlo.txt",
    "layers.csv",
    "scale.cfg",
    "v5e",
    "bf16[10,300]{1,0:T(8,128)}",
    "-",
)
_FILES = {
    "mlp.v5e.hlo.txt.gz": "tests/data/numeric/mlp_gelu.v5e.hlo.txt.gz",
    "sort.v5e.hlo.txt.gz": "tests/data/numeric/sort.v5e.hlo.txt.gz",
}
_TEXTS = {
    "layers.csv": "Layer, M, N, K\none, 100, 25, 38\n",
    "scale.cfg": "ArrayHeight: 8\nArrayWidth: 8\nIfmapSramSzkB: 6\nFilterSramSzkB: 6\nOfmapSramSzkB: 6\nDataflow: ws\n",
}
_OVERRIDES = ("hbm.efficiency=0.9", "mxu.count=x2", "pod.host=x", "ici.links=0", "clock_hz=0", "a=b", "=")
# Nothing is written but to these, whatever else a case has in it.
_OUTPUTS = ("out.json", "out.png", "out.svg", "out.html", "out.npz", "out.dat", "out", "missing/out.json")
_REFUSED, _USAGE, _FAULT = 1, 2, 70


@cache
def parsers() -> dict[str, list[argparse.Action]]:
    """Return the options and arguments of every command, and of every kind of plot."""
    found: dict[str, list[argparse.Action]] = {}
    commands = argparse.ArgumentParser().add_subparsers()
    for command in (*COMMANDS, plot):
        if command.name not in _LEFT_OUT:
            command.add_to(commands)
    for name, parser in commands.choices.items():
        kinds = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        inner = kinds[0].choices.items() if kinds else ()
        found |= {f"{name} {kind}": one._actions for kind, one in inner} or {name: parser._actions}
    return found


def _value(random: Random, action: argparse.Action) -> str:
    if action.choices:
        return str(random.choice((*action.choices, *action.choices, "x")))
    name = action.dest
    if name in ("override",):
        return random.choice(_OVERRIDES)
    if name in ("chip", "name"):
        return random.choice(("v5e", "v5e", "v6e", "v5p", "v5f", "x.toml"))
    if name == "topology":
        return random.choice(("v5e:2x4", "v5p-128", "4x4", "0x0", "v6e-" + "9" * 20))
    if name in _WRITTEN:
        return random.choice(_OUTPUTS)
    if name in ("program", "before", "after", "beside"):
        return random.choice(_INPUTS[:1] * 4 + _INPUTS)
    words = tuple(word for word in WORDS if "/" not in word and "\0" not in word)
    return random.choice((*_INPUTS, *NUMBERS, *NUMBERS, *words, "50us"))


_WRITTEN = frozenset("output outputs outfeed save links html trace xprof model_explorer counts reports csv".split())


def _arguments(random: Random) -> bytes:
    # A command first, then its kind: plots have many, and take long.
    command = random.choice(sorted({name.split()[0] for name in parsers()}))
    name = random.choice([name for name in parsers() if name.split()[0] == command])
    arguments = name.split()
    for action in parsers()[name]:
        # Most options are left out, most arguments and what is required is there.
        is_optional = bool(action.option_strings) and not action.required
        if isinstance(action, argparse._HelpAction) or random.random() < (0.8 if is_optional else 0.05):
            continue
        if action.option_strings:
            arguments.append(action.option_strings[-1])
        if action.nargs != 0:
            arguments.append(_value(random, action))
    if random.random() < 0.1:
        random.shuffle(arguments)
    return json.dumps(arguments).encode()


def _lay_out(folder: Path) -> None:
    for name, source in _FILES.items():
        linked(folder, name, source)
    for name, text in _TEXTS.items():
        (folder / name).write_text(text)


def run_command(arguments: list[str], folder: Path) -> str:
    """Run a command in a folder and return what it prints; TpusimError with what it says if it refuses."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
    if code == _FAULT or code not in (0, _REFUSED, _USAGE):
        raise Wrong(f"exit code {code}: {error.getvalue()[-600:]}")
    # Wrong usage shows the caller's own words.
    for text in (out.getvalue(), error.getvalue()) if code != _USAGE else ():
        if text:
            check_text(text)
    if code:
        if not error.getvalue().strip():
            raise Wrong(f"refused without a word: {arguments}")
        raise TpusimError(error.getvalue())
    return out.getvalue()


@surface("options", _arguments, 6)
def take_options(content: bytes, folder: Path) -> None:
    """Run a command; it ends with an exit code that says how, and prints nothing that drives a terminal."""
    _lay_out(folder)
    arguments = json.loads(content)
    printed = run_command(arguments, folder)
    # What a stage hands on is written in its own form.
    if "--json" in arguments and "text" not in arguments and pick(content, 2):
        json.loads(printed)
