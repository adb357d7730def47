"""The long run: ``python -m tests.robust --long SECONDS --seed N`` tries new cases and counts them by surface."""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import tests.robust.surfaces
from tests.robust.contract import SURFACES, Fault, made_input, run_seeds

_MARGIN = 10**6

assert tests.robust.surfaces


_interrupted: list[int] = []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.robust", description=__doc__)
    parser.add_argument(
        "--long",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long, and a batch of each at least (default: 60)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which cases: other ones for another number")
    parser.add_argument("--surface", action="append", choices=sorted(SURFACES), help="only this one; may be repeated")
    parser.add_argument("--case", type=int, metavar="SEED", help="run one case of the surface, and write its input")
    parser.add_argument("--batch", type=int, default=400, help="cases of a surface before the next has its turn")
    parser.add_argument("--floor", type=int, default=0, help="cases of each surface before weights count (default: 0)")
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
    had = {name: _Had() for name in names}
    faults = _long(had, options)
    _print_counts(had)
    total = sum(one.ended.total() for one in had.values())
    cpu_seconds = sum(one.cpu_seconds for one in had.values())
    sys.stdout.write(f"{total:,} cases in {cpu_seconds:,.0f} s of CPU time, {len(faults)} broke the contract\n")
    return 1 if faults else 0


@dataclass
class _Had:
    """What a surface has had: cases by how they ended, and what they took."""

    ended: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0


def _one_case(name: str, seed: int) -> int:
    sys.stdout.buffer.write(made_input(SURFACES[name], seed))
    sys.stdout.flush()
    report = run_seeds(SURFACES[name], [seed])
    sys.stderr.write(f"\n{report.ended} {report.faults}\n")
    return 1 if report.faults else 0


def _long(had: dict[str, _Had], options: argparse.Namespace) -> list[Fault]:
    """Run batches of cases until the time is over; return what broke the contract, told as it comes."""
    faults: list[Fault] = []
    first = options.seed * _MARGIN
    end, shuffled = time.monotonic() + options.long, Random(first)

    def share(name: str) -> tuple[float, ...]:
        """Return how much a surface has had: the least has the next turn, those below the floor before others."""
        cases = had[name].ended.total()
        weighted = had[name].cpu_seconds / SURFACES[name].weight
        return (min(cases, options.floor), weighted if cases >= options.floor else 0.0, shuffled.random())

    while True:
        name = min(had, key=share)
        begin, before = first + had[name].ended.total(), _children_seconds()
        report = run_seeds(SURFACES[name], range(begin, begin + options.batch))
        had[name].cpu_seconds += _children_seconds() - before
        had[name].ended += report.ended
        for fault in report.faults:
            _tell(fault, {_kind(other) for other in faults}, options.keep)
            faults.append(fault)
        is_over = time.monotonic() >= end and all(one.ended for one in had.values())
        if is_over or _interrupted:
            return faults


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def _print_counts(had: dict[str, _Had]) -> None:
    kinds = ("result", "refused", "traceback", "hang", "memory", "wrong", "died")
    heads = (*kinds, "CPU s", "cases/s")
    sys.stdout.write(f"{'surface':14}" + "".join(f"{head:>11}" for head in heads) + "\n")
    for name, one in sorted(had.items()):
        rate = one.ended.total() / max(one.cpu_seconds, 1e-9)
        cells = (*(f"{one.ended[kind]:,}" for kind in kinds), f"{one.cpu_seconds:,.0f}", f"{rate:,.0f}")
        sys.stdout.write(f"{name:14}" + "".join(f"{cell:>11}" for cell in cells) + "\n")


if __name__ == "__main__":
    sys.exit(main())
