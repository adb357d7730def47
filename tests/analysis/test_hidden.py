"""What ran behind what: beside the definition, pair by pair, and in the memory and time of what is shown."""

from __future__ import annotations

from collections import Counter
from random import Random
from time import process_time

import pytest

from tests.growth import MOST, grows_by
from tpusim.analysis.path.hidden import hidden_behind
from tpusim.timeline.records import CORE, Record


def record(name: str, row: str, start_ps: int, end_ps: int, count: int = 1) -> Record:
    """Return a record of which only its time matters."""
    return Record(
        name=name, opcode="x", category="x", row=row, start_ps=start_ps, end_ps=end_ps, bound_by="HBM", count=count
    )


def run(seed: int, names: int) -> tuple[Record, ...]:
    """Return sixty ops of the core, one after the other, and forty transfers anywhere beside them."""
    draw = Random(seed)
    found, at = list[Record](), 0
    for number in range(60):
        at += draw.randrange(3)
        end = at + draw.randrange(9)
        found.append(record(f"k{number % names}", CORE, at, end, draw.choice((1, 3, 10**30))))
        at = end
    for number in range(40):
        begin, end = sorted((draw.randrange(at), draw.randrange(at)))
        found.append(record(f"t{number % names}", "dma", begin, end, draw.choice((1, 2, 10**40))))
    return tuple(found)


def naive(records: tuple[Record, ...]) -> Counter[tuple[str, str]]:
    """Return the time of each pair, by the definition."""
    found = Counter[tuple[str, str]]()
    for op in (one for one in records if one.row == CORE):
        for beside in (one for one in records if one.row != CORE):
            shared_ps = min(op.end_ps, beside.end_ps) - max(op.start_ps, beside.start_ps)
            found[beside.name, op.name] += max(0, shared_ps) * min(op.count, beside.count)
    return +found


@pytest.mark.parametrize("most", [0, 1, 7, 50, 400, 10_000])
def test_the_longest_pairs_are_those_of_all(most: int) -> None:
    """However many are told apart, and where transfers and ops run several times."""
    for seed in range(20):
        records = run(seed, names=60)
        pairs, rest = hidden_behind(records, most)
        wanted, shown = naive(records), {(pair.name, pair.behind): pair.time_ps for pair in pairs}
        assert list(shown.values()) == sorted(wanted.values(), reverse=True)[: len(shown)]
        assert shown.items() <= wanted.items()
        assert len(shown) + sum(one.ops for one in rest) == len(wanted)


@pytest.mark.parametrize("most", [0, 7, 10_000])
@pytest.mark.parametrize("names", [3, 60])
def test_the_sums_of_transfers_are_exact(most: int, names: int) -> None:
    """What is told apart and the rest of each, also where names come again."""
    for seed in range(20):
        records = run(seed, names)
        wanted, sums = Counter[str](), Counter[str]()
        for (name, _), time_ps in naive(records).items():
            wanted[name] += time_ps
        pairs, rest = hidden_behind(records, most)
        for one in (*pairs, *rest):
            sums[one.name] += one.time_ps
        assert sums == wanted


@pytest.mark.slow
def test_time_grows_with_the_records() -> None:
    """As many transfers under way as ops run: their pairs are the square."""

    def seconds(size: int) -> float:
        ops = [record(f"k{n}", CORE, 2 * n, 2 * n + 2) for n in range(size)]
        beside = [record(f"t{n}", "dma", n, 2 * size) for n in range(size)]
        begin = process_time()
        assert len(hidden_behind((*ops, *beside), 1000)[0]) == 1000
        return process_time() - begin

    assert grows_by(seconds, (1000, 2000, 4000)) < MOST
