"""Sweeps from the command line: axes of any figures, chips, slices and schedules, and studies that are gone on with."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path
from random import Random
from shutil import rmtree

from tests.robust.contract import Wrong, pick, surface
from tests.robust.mutations import NUMBERS
from tests.robust.programs import linked
from tests.robust.surfaces.machines import figure_key, figure_text
from tests.robust.surfaces.options import run_command

_PROGRAMS = (
    "mlp.v5e.hlo.txt.gz",
    "sort.v5e.hlo.txt.gz",
    "*.v5e.hlo.txt.gz",
    "{name}.v5e.hlo.txt.gz",
    "missing.hlo.txt",
)
_RANGES = (
    "log(400G, 3T, 2)",
    "lin(0.5, 1, 3)",
    "log(0, 1, 2)",
    "lin(1, 2)",
    "log(1, 2, 1e9)",
    "lin(nan, 1, 2)",
    "log(",
)
_OTHERS = {
    "--chip": ("v5e", "v5e,v6e", "v5e,v5e", "v4,v4-megacore", "v9", ","),
    "--topology": ("v5e:2x4", "2x2,2x4", "v5e:2x2,v6e:2x2", "0x0", "x"),
    "--schedule": ("given", "given,retiled", "compiled,compiled", "x"),
    "--default-trip-count": ("2", "0", "x"),
    "--csv": ("out.csv", "missing/out.csv"),
    "--study": ("kept",),
    "--optimise": ("time_us",),
}
_FLAGS = ("--allow-overflow", "--warm", "--no-reuse")


def _axis(random: Random) -> str:
    """Return a key with one to three values, or a range."""
    if random.random() < 0.2:
        return f"name={random.choice(('mlp', 'mlp,sort', 'x'))}"
    key, values = figure_key(random), [figure_text(random) for _ in range(random.choice((1, 2, 2, 3)))]
    return f"{key}={random.choice(_RANGES) if random.random() < 0.2 else ','.join(values)}"


def _sweep(random: Random) -> bytes:
    arguments = ["sweep", random.choice(_PROGRAMS[:1] * 4 + _PROGRAMS), "--jobs", "1", "--quiet"]
    for _ in range(random.choice((0, 1, 1, 2))):
        arguments += "-o", _axis(random)
    for name, values in _OTHERS.items():
        if random.random() < 0.2:
            value = random.choice(NUMBERS) if name == "--default-trip-count" and random.random() < 0.3 else ""
            arguments += name, value or random.choice(values)
    # A table is held against what is printed.
    shown = ["--json"] if "--csv" in arguments else []
    return json.dumps(arguments + shown + [flag for flag in _FLAGS if random.random() < 0.2]).encode()


@surface("sweep", _sweep, 4)
def take_sweep(content: bytes, folder: Path) -> None:
    """Run a sweep; its table has a row for each point, and the same command says the same of what is kept."""
    for name, source in (("mlp", "mlp_gelu"), ("sort", "sort")):
        linked(folder, f"{name}.v5e.hlo.txt.gz", f"tests/data/numeric/{source}.v5e.hlo.txt.gz")
    rmtree(folder / "kept", ignore_errors=True)
    arguments = json.loads(content)
    printed = run_command(arguments, folder)
    points = len(json.loads(printed)["rows"]) if "--json" in arguments else None
    if "--csv" in arguments:
        table = folder / arguments[arguments.index("--csv") + 1]
        rows = [*csv.DictReader(StringIO(table.read_text()))]
        if points not in (None, len(rows)):
            raise Wrong(f"{points} points, {len(rows)} rows")
    if "--study" in arguments and pick(content, 2) and run_command(arguments, folder) != printed:
        raise Wrong(f"another answer of what is kept: {printed[:300]}")
