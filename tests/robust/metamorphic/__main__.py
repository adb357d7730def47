"""Relations on all programs of a folder: ``python -m tests.robust.metamorphic FOLDER``."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.robust.metamorphic.case import Case, Skip
from tests.robust.metamorphic.relations import RELATIONS, violations
from tpusim.errors import TpusimError

_TOLD = 50


class Outcome(NamedTuple):
    """What one program came to under one relation: what it broke, or why it was left out."""

    relation: str
    program: str
    broken: tuple[str, ...] = ()
    skipped: str = ""


def tried(path: Path, names: Sequence[str]) -> list[Outcome]:
    """Return what a program comes to under some relations."""
    try:
        case = Case(path)
    except TpusimError as error:
        return [Outcome(name, str(path), skipped=f"cannot be read: {error}") for name in names]
    found = []
    for name in names:
        try:
            found.append(Outcome(name, str(path), tuple(violations(case, name))))
        except Skip as reason:
            found.append(Outcome(name, str(path), skipped=str(reason)))
        except Exception as error:
            found.append(Outcome(name, str(path), (f"{type(error).__name__}: {error}",)))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.robust.metamorphic", description=__doc__)
    parser.add_argument("folder", type=Path, help="where programs are, or one program")
    parser.add_argument("--relation", action="append", choices=sorted(RELATIONS), help="only this one")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time (default: 1)")
    return parser


def main() -> int:
    """Try relations on programs; return 1 if one broke any."""
    parser = _parser()
    options = parser.parse_args()
    if not options.folder.exists():
        parser.error(f"there is no {options.folder}")
    os.environ["TPUSIM_CACHE"] = ""
    names = options.relation or list(RELATIONS)
    paths = sorted(options.folder.rglob("*.hlo.txt.gz")) if options.folder.is_dir() else [options.folder]
    # The smallest first: they say soonest what is wrong.
    paths.sort(key=lambda path: path.stat().st_size)
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, found in enumerate(pool.map(tried, paths, [names] * len(paths)), 1):
            outcomes += found
            lines = [f"{one.relation}: {one.program}: {broken}\n" for one in found for broken in one.broken]
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
            if number % _TOLD == 0:
                sys.stderr.write(f"{number} of {len(paths)}\n")
    _print_summary(names, outcomes)
    return 1 if any(one.broken for one in outcomes) else 0


def _print_summary(names: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    sys.stdout.write(f"{'relation':30}{'programs':>10}{'violations':>12}  skipped\n")
    for name in names:
        found = [one for one in outcomes if one.relation == name]
        skipped = Counter(one.skipped.partition(":")[0] for one in found if one.skipped)
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common())
        broken = sum(bool(one.broken) for one in found)
        sys.stdout.write(f"{name:30}{len(found) - skipped.total():10}{broken:12}  {reasons}\n")


if __name__ == "__main__":
    sys.exit(main())
