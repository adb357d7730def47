"""How many kernels are priced in a second, one by one: ``python -m benchmarks.kernels [PROGRAM ...]``.

A kernel is priced when it is cut into tiles (lowering) and played on the clock (machine). Reading the text is shown
beside it, since it is the larger part of most runs. Figures are CPU seconds, the best of several rounds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import process_time

from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import load, lower, run_program

TRACES = Path(__file__).parents[1] / "traces"
PROGRAMS = ("resnet50_train_b64.v5e", "gpt2_train_fsdp.v5p_4x4x4", "bert_base_b32t128.v3", "linalg_512.v7x")


def stages(path: str) -> tuple[float, float, float, int]:
    """Return the seconds of reading, lowering and running a program once, and the kernels that its core ran."""
    start = process_time()
    module = load(path)
    read = process_time()
    program = lower(module)
    lowered = process_time()
    timeline = run_program(program, load_chip(program.chip))
    ended = process_time()
    return read - start, lowered - read, ended - lowered, sum(r.count for r in timeline.records if r.is_kernel)


def main() -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=[str(TRACES / f"{name}.hlo.txt.gz") for name in PROGRAMS])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    sys.stdout.write(f"{'program':28} {'kernels':>8} {'read s':>8} {'lower s':>8} {'run s':>8} {'kernels/s':>10}\n")
    for path in options.programs:
        rounds = [stages(path) for _ in range(options.rounds)]
        reading, lowering, running = (min(column) for column in list(zip(*rounds, strict=True))[:3])
        kernels = rounds[0][3]
        rate = kernels / (lowering + running)
        name = Path(path).name.partition(".hlo")[0]
        sys.stdout.write(f"{name:28} {kernels:8,} {reading:8.3f} {lowering:8.3f} {running:8.3f} {rate:10,.0f}\n")


if __name__ == "__main__":
    main()
