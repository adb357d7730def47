"""Reading and printing whole programs: nothing is lost, and both ways of reading agree."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.text.programs import ALL, COMPILED, TRACES, name_of, source
from tpusim.text import Style, parse_module, print_module, read_source

programs = pytest.mark.parametrize("path", ALL, ids=name_of)


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_what_a_compiler_printed_prints_the_same_byte_for_byte(path: Path) -> None:
    """Compilers print with ``%`` and signatures, front ends without; both forms are XLA's."""
    program = read_source(path)
    style = Style.DEFAULT if "\n  %" in program.text else Style.SHORT
    assert print_module(parse_module(program), style) == program.text


@programs
def test_a_printed_module_reads_back_as_itself(path: Path) -> None:
    """Printing loses nothing that a module holds."""
    module = parse_module(read_source(path))
    assert parse_module(source(print_module(module))) == module


@programs
def test_printing_twice_changes_nothing(path: Path) -> None:
    """Canonical text is its own canonical text."""
    printed = print_module(parse_module(read_source(path)))
    assert print_module(parse_module(source(printed))) == printed


@programs
def test_reading_token_by_token_gives_the_same_module(path: Path) -> None:
    """Reading ordinary lines at once is a matter of speed only."""
    program = read_source(path)
    assert parse_module(program, careful=True) == parse_module(program)


@pytest.mark.slow
@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_reading_token_by_token_gives_the_same_model(path: Path) -> None:
    """Places included."""
    program = read_source(path)
    careful, module = parse_module(program, careful=True), parse_module(program)
    assert careful == module
    assert [c.offsets for c in careful.computations] == [c.offsets for c in module.computations]


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_the_short_style_reads_back_as_the_same_module(path: Path) -> None:
    """Names without ``%`` and computations without signatures say the same."""
    module = parse_module(read_source(path))
    assert parse_module(source(print_module(module, Style.SHORT))) == module


@programs
def test_every_instruction_knows_its_place(path: Path) -> None:
    """Its offset points at its name, with ``%`` or without; instructions made up for operands point at the operand."""
    module = parse_module(read_source(path))
    assert module.source is not None
    for computation in module.computations:
        for offset, instruction in zip(computation.offsets, computation.instructions, strict=True):
            written = module.source.text[offset:].lstrip("%").startswith(instruction.name)
            assert written or ".anon" in instruction.name or path.stem.startswith("one_instruction")


def test_the_garbage_collector_is_as_before() -> None:
    """Reading pauses it; that must not outlast the call, even one that fails."""
    assert gc.isenabled()
    parse_module(source("f32[] add(f32[], f32[])"))
    with pytest.raises(Exception, match="HloModule"):
        parse_module(source(" "))
    assert gc.isenabled()


def test_the_garbage_collector_does_not_walk_a_large_module() -> None:
    """Neither while it grows nor right after it, which would take a twentieth of the time."""
    lines = "".join(f"  %n{i + 1} = f32[] negate(%n{i})\n" for i in range(120_000))
    program = source(f"HloModule m\n\nENTRY %e {{\n  %n0 = f32[] parameter(0)\n{lines}}}\n")
    walks: list[str] = []
    gc.collect()
    gc.callbacks.append(lambda phase, info: walks.append(phase))
    module = parse_module(program)
    gc.callbacks.pop()
    assert module.instruction_count == 120_001
    assert not walks
