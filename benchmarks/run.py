"""How long ``tpusim run`` takes from the shell, start-up included: ``python benchmarks/run.py [PROGRAM] [--runs N]``.

The default program is the largest of traces/ (a training step of 22,000 instructions). Runs alternate with a bare
interpreter and with ``tpusim --help`` so that the figures of one run share the state of the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from time import perf_counter

TRACES = Path(__file__).parents[1] / "traces"
LARGEST = TRACES / "resnet50_train_b64.v5e.hlo.txt.gz"


def seconds(command: list[str]) -> float:
    """Return the wall time of one run of a command."""
    start = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - start


def main() -> None:
    """Print the best wall time of each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="?", default=str(LARGEST))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    commands = {
        "bare interpreter": [sys.executable, "-c", "pass"],
        "tpusim --help": [sys.executable, "-m", "tpusim", "--help"],
        f"tpusim run {Path(options.program).name}": [sys.executable, "-m", "tpusim", "run", options.program],
    }
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(options.runs):
        for name, command in commands.items():
            best[name] = min(best[name], seconds(command))
    for name, wall in best.items():
        sys.stdout.write(f"{wall:8.3f} s  {name}\n")


if __name__ == "__main__":
    main()
