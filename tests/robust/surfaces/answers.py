"""What commands say of a program, and write of it: each of them on programs that somebody has damaged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

from tests.robust.contract import surface
from tests.robust.mutations import encoded
from tests.robust.programs import mutated_hlo, scheduled, still_whole, unscheduled
from tests.robust.surfaces.options import run_command

_NAME = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ", re.MULTILINE)
_CHIPS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x")
_PLOTS = (
    "plot timeline -o out.svg",
    "plot timeline --unfold -o out.svg",
    "plot roofline -o out.svg",
    "plot memory -o out.svg",
    "plot utilisation --by source -o out.svg",
    "plot utilisation --by op -o out.svg",
    "plot tiles --op NAME -o out.svg",
    "plot pallas --op NAME -o out.svg",
    "plot links -o out.svg",
)
_ANSWERS = (
    "explain --op NAME",
    "explain --op NAME --json",
    "explain",
    "path",
    "path --json",
    "advise --quiet",
    "advise --quiet --json",
    "memory",
    "memory --json",
    "check",
    "check --json",
    "fmt",
    "lower",
    "run --by source",
    "run --by category --json",
    "run --quiet --warm --trace out.json",
    "run --quiet --html out.html",
    "run --quiet --xprof out",
    "run --quiet --model-explorer out.json",
    "run --quiet --counts out.yaml",
    "run --stop-after lowering",
    "run --stop-after machine",
    "run --quiet --save out.json --links links.json",
    "run --quiet --default-trip-count 7 --infeed-pace 50us",
    "run --quiet --schedule compiled",
    "diff --chip v5e --chip v6e",
    "diff --chip v5p --chip v4 --json",
    "scale --quiet",
    "compile",
    "compile --report",
    "compile --json",
)


def _asked(random: Random) -> bytes:
    mutated = mutated_hlo if random.random() < 0.3 else still_whole
    text = mutated(random, scheduled() if random.random() < 0.8 else unscheduled()).decode(errors="replace")
    # A picture takes as long as ten answers.
    command = random.choice(_PLOTS if random.random() < 0.05 else _ANSWERS).split()
    if "NAME" in command:
        command[command.index("NAME")] = random.choice(_NAME.findall(text) or ["none"])
    if "diff" not in command and "check" not in command and "fmt" not in command:
        command += "--chip", random.choice(_CHIPS)
    return encoded(json.dumps(command) + "\n" + text)


@surface("answers", _asked, 12)
def take_answer(content: bytes, folder: Path) -> None:
    """Ask a command about a program."""
    command, _, text = content.partition(b"\n")
    options = json.loads(command)
    (folder / "case.hlo.txt").write_bytes(text)
    printed = run_command([*options, "case.hlo.txt"], folder)
    if "--json" in options:
        json.loads(printed)
