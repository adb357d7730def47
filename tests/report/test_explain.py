"""The page of a kernel, from figures written by hand."""

from __future__ import annotations

import io

from msgspec import structs
from rich.console import Console

from tests.report.picture_cases import product
from tpusim.analysis.explained.body import BLOCKS, Body, StepKind
from tpusim.program.compilation import TriedTiles
from tpusim.report.terminal.explain import render_explanation
from tpusim.timeline.records import DEPENDENT


def kind(name: str, steps: int, **held_cycles: float) -> StepKind:
    """Return steps of 1 ps a cycle."""
    time_ps = round(steps * sum(held_cycles.values()))
    return StepKind(
        name=name, where=(), steps=steps, time_ps=time_ps, held_cycles=held_cycles, busy_cycles={}, operations={},
        in_bytes=0, out_bytes=0,
    )  # fmt: skip


def page(*kinds: StepKind) -> str:
    """Return the page of a kernel of some steps that takes 1,000 ps."""
    console = Console(file=io.StringIO(), width=120)
    body = Body(kinds=kinds, lines=(), chain=(), least_ps={"matrix": 500}, rest_ps=100, copies_itself=False)
    render_explanation(structs.replace(product(), body=body, alone_ps=1000), console)
    return console.file.getvalue()


def test_what_holds_a_kernel_up_is_added_up_over_its_steps():
    """Of 1,000 ps 40 x 15 wait for blocks, 300 compute, and 100 are at the edges."""
    text = page(kind("steady", 40, matrix=5, **{BLOCKS: 15}), kind("skipped", 10, matrix=10))
    assert "goes to   waiting for blocks 60%, matrix unit 30%, the launch, the first and the last blocks 10%" in text
    assert "60% of it goes to waiting for blocks" in text


def test_the_floor_is_the_busiest_unit():
    """Half of the time."""
    assert "if the matrix unit never waited: now 2.00 times that" in page(kind("steady", 40, matrix=5))


def test_the_tiles_that_a_kernel_has_are_marked():
    """Whoever chose them: those of another compiler are a row of their own."""
    console = Console(file=io.StringIO(), width=120)
    own = structs.replace(product(), tiles=7, alone_ps=3 * 10**6)
    tried = TriedTiles(tiles=2, loops=(), stated={}, alone_ps=2 * 10**6)
    render_explanation(structs.replace(own, tried=(tried,)), console)
    lines = console.file.getvalue().partition("best of the tiles tried")[2].splitlines()
    assert ["(here)" in line for line in lines[1:3]] == [False, True]
    assert "3.00 us" in lines[2]


def test_of_blocks_that_make_as_many_tiles_the_kernel_has_one():
    """Square ones and flat ones: those that take what the kernel does."""
    console = Console(file=io.StringIO(), width=120)
    own = structs.replace(product(), tiles=2, loops=(), alone_ps=3 * 10**6)
    tried = tuple(TriedTiles(tiles=2, loops=(), stated={}, alone_ps=us * 10**6) for us in (2, 3, 4))
    render_explanation(structs.replace(own, tried=tried), console)
    lines = console.file.getvalue().partition("best of the tiles tried")[2].splitlines()
    assert ["(here)" in line for line in lines[1:4]] == [False, True, False]


def test_what_would_help_steps_that_wait_is_no_unit():
    """Of 1,000 ps they wait for each other for 700, whichever unit is busiest."""
    console = Console(file=io.StringIO(), width=120)
    parts = {DEPENDENT: 700, "VMEM": 300}
    render_explanation(structs.replace(product(), cycles={"vector": 9.0}, parts_ps=parts, alone_ps=1000), console)
    assert "steps wait for each other (70%)" in console.file.getvalue()
    assert "the longest of a tile" not in console.file.getvalue()
