"""The long run: ``python -m tests.robust --long SECONDS --seed N`` tries new cases and counts them by surface."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import tests.robust.surfaces
from tests.robust.contract import SURFACES, Fault, made_input, run_seeds

_MARGIN = 10**6

assert tests.robust.surfaces


_interrupted: list[int] = []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.robust", description=__doc__)
    parser.add_argument("--long", type=float, default=60.0, metavar="SECONDS", help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which cases: other ones for another number")
    parser.add_argument("--surface", action="append", choices=sorted(SURFACES), help="only this one")
    parser.add_argument("--case", type=int, metavar="SEED", help="run one case of the surface, and write its input")
    parser.add_argument("--batch", type=int, default=400, help="cases of a surface before the next has its turn")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="write the inputs that broke the contract here")
    return parser


def main() -> int:
    """Run cases until the time is over; return 1 if one broke the contract."""
    options = _parser().parse_args()
    # The counts so far are told as well after an interrupt.
    signal.signal(signal.SIGTERM, lambda number, frame: _interrupted.append(number))
    names = options.surface or sorted(SURFACES)
    if options.case is not None:
        return _one_case(names[0], options.case)
    ended, faults = _long(names, options.long, options.seed * _MARGIN, options.keep, options.batch)
    _print_counts(ended)
    sys.stdout.write(f"{sum(map(Counter.total, ended.values())):,} cases, {len(faults)} broke the contract\n")
    return 1 if faults else 0


def _one_case(name: str, seed: int) -> int:
    sys.stdout.buffer.write(made_input(SURFACES[name], seed))
    sys.stdout.flush()
    report = run_seeds(SURFACES[name], [seed])
    sys.stderr.write(f"\n{report.ended} {report.faults}\n")
    return 1 if report.faults else 0


def _long(
    names: list[str], seconds: float, first: int, keep: Path | None, batch: int
) -> tuple[dict[str, Counter[str]], list[Fault]]:
    """Return the cases of every surface by how they ended, and what broke the contract, told as it comes."""
    ended = {name: Counter[str]() for name in names}
    faults: list[Fault] = []
    # Seconds by surface and weight: the one that has had least of its share is next.
    had = dict.fromkeys(names, 0.0)
    end, shuffled = time.monotonic() + seconds, Random(first)
    while time.monotonic() < end and not _interrupted:
        name = min(names, key=lambda one: (had[one] / SURFACES[one].weight, shuffled.random()))
        begin = first + ended[name].total()
        before = time.process_time(), time.monotonic()
        report = run_seeds(SURFACES[name], range(begin, begin + batch))
        had[name] += time.monotonic() - before[1]
        ended[name] += report.ended
        for fault in report.faults:
            _tell(fault, {_kind(other) for other in faults}, keep)
            faults.append(fault)
    return ended, faults


def _kind(fault: Fault) -> tuple[str, str]:
    """Return what faults with one cause have in common."""
    place = fault.detail.partition(" at ")[2]
    return (fault.surface, place or fault.kind)


def _tell(fault: Fault, told: set[tuple[str, str]], keep: Path | None) -> None:
    if _kind(fault) in told:
        return
    sys.stdout.write(f"{fault.surface} {fault.seed}: {fault.kind}: {fault.detail}\n")
    sys.stdout.flush()
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{fault.surface}.{fault.seed}").write_bytes(made_input(SURFACES[fault.surface], fault.seed))


def _print_counts(ended: dict[str, Counter[str]]) -> None:
    kinds = ("result", "refused", "traceback", "hang", "memory", "wrong", "died")
    sys.stdout.write(f"{'surface':14}" + "".join(f"{kind:>11}" for kind in kinds) + "\n")
    for name, counts in sorted(ended.items()):
        sys.stdout.write(f"{name:14}" + "".join(f"{counts[kind]:11,}" for kind in kinds) + "\n")


if __name__ == "__main__":
    sys.exit(main())
