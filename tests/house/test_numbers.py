"""No number about silicon stands in code: literals of the rooms that decide times and values are counted."""

from __future__ import annotations

import ast

import pytest

from tests.house.source_tree import SourceFile, read_files

PLAIN = {0, 1, 2, 8, 0.5}
"""None, one, a pair, both operations of a multiply-add, bits of a byte, a half."""

ROOMS = ("lowering", "cost", "machine")

ALLOWED: dict[str, str] = {
    "tpusim/cost/by_slice.py": "limits of a compiler's choice among algorithms",
    "tpusim/cost/collectives.py": "most routes, tolerances, quarters of a ring of both ways",
    "tpusim/cost/groups.py": "how many links are looked at together, and how much of plans is kept",
    "tpusim/cost/links.py": "kinds of ways beside the links",
    "tpusim/cost/models/fabrics.py": "how many graphs are remembered",
    "tpusim/cost/models/dram.py": "columns of a pattern, how many bursts are played and remembered",
    "tpusim/cost/models/settings.py": "bounds of what a chip's file may give a model",
    "tpusim/cost/models/ramulator.py": "how many samples are remembered, how often a sample has a row",
    "tpusim/lowering/collectives.py": "the position of an operand of XLA's ragged-all-to-all",
    "tpusim/lowering/control.py": "how many instructions are lowered for ways into computations that are told apart",
    "tpusim/lowering/kernels/decompositions.py": "operations and steps of algorithms, sweeps of Jacobi's method",
    "tpusim/lowering/kernels/in_turn.py": "quadrants and rotations of Jacobi's method",
    "tpusim/lowering/kernels/ragged.py": "limits of a compiler's choice among tiles",
    "tpusim/lowering/kernels/tiles.py": "how many cuts of each of three loops are tried, and remembered",
    "tpusim/lowering/kernels/vector.py": "the bits of bf16",
    "tpusim/lowering/pallas/classes.py": "how many kinds of steps are told apart",
    "tpusim/lowering/pallas/kernel.py": "how many steps of a grid are told apart",
    "tpusim/lowering/pallas/scalars.py": "a factor that keeps sums of indices apart",
    "tpusim/lowering/pallas/sends.py": "how many turns of sends are played, and devices looked at, one by one",
    "tpusim/lowering/pallas/walk.py": "how many trips of a loop are told apart, positions of operands",
    "tpusim/machine/cohorts.py": "how many devices are simulated one by one before some stand for others",
    "tpusim/machine/costs.py": "how much of what is known of collectives is kept",
    "tpusim/machine/choices.py": "how many choices trips are kept under",
    "tpusim/machine/fluid.py": "rounding of a flow's last bytes",
    "tpusim/machine/network.py": "rounding of a link's share",
    "tpusim/machine/recording.py": "records of a time line that writes out what is shared",
    "tpusim/machine/rendezvous.py": "how much of who meets whom is kept",
    "tpusim/machine/steps/kernel.py": "a nanosecond, below which the order of two ends is chance",
    "tpusim/machine/waits.py": "how many devices a message names",
    "tpusim/machine/world.py": "trips that are played before a loop is given up",
    "tpusim/machine/steps/control.py": "how many trips in which something is chosen are shown each by itself",
}
"""Files whose numbers are of algorithms and texts, and which these are."""

SILICON = {16, 64, 128, 256, 512, 1024, 2048, 4096, 16384}
"""Sizes that arrays, registers and memories have."""

OF_VALUES: dict[str, str] = {
    "tpusim/numerics/custom_calls/approx_top_k.py": "lanes and registers of the compiler's bins",
    "tpusim/numerics/ops/convert.py": "values of a byte",
    "tpusim/numerics/ops/random.py": "words of the generators of random bits",
    "tpusim/numerics/site.py": "the depth of the array where no chip is given",
    "tpusim/numerics/values/integers.py": "halves of a word",
    "tpusim/numerics/values/precision.py": "products of bytes whose sum f32 holds exactly",
}
"""Files of numerics that name such a size, and why: bits of types and sizes of caches aside."""


def literals(file: SourceFile) -> list[tuple[int, float]]:
    """Return the numbers that a file writes, with their lines."""
    found = (node for node in ast.walk(file.tree) if isinstance(node, ast.Constant))
    return [
        (node.lineno, node.value)
        for node in found
        if isinstance(node.value, int | float) and not isinstance(node.value, bool)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_no_figure_of_a_chip_stands_in_code(room: str) -> None:
    """Every other number is in ``configs/``, with a source; files with numbers of another kind say which."""
    breaches = [
        f"{file.path}:{line}: {value}"
        for file in read_files(f"tpusim/{room}")
        for line, value in literals(file)
        if value not in PLAIN and file.path not in ALLOWED
    ]
    assert not breaches, breaches


def test_no_size_of_an_array_stands_in_numerics() -> None:
    """Bits of element types are powers of two as well: words of types and bytes are looked past by their context."""
    breaches = [
        f"{file.path}:{line}: {value}"
        for file in read_files("tpusim/numerics")
        for line, value in literals(file)
        if value in SILICON and file.path not in OF_VALUES and not _is_of_types(file.text.splitlines()[line - 1])
    ]
    assert not breaches, breaches


def test_every_file_that_is_allowed_numbers_has_some() -> None:
    """An entry whose file keeps the rule by now goes."""
    files = {file.path: file for room in (*ROOMS, "numerics") for file in read_files(f"tpusim/{room}")}
    idle = [path for path in {**ALLOWED, **OF_VALUES} if path not in files or not _numbers(files[path]) - PLAIN]
    assert not idle, idle


def _numbers(file: SourceFile) -> set[float]:
    """Return the numbers of a file, each once."""
    return {value for _, value in literals(file)}


def _is_of_types(line: str) -> bool:
    """Return whether a line speaks of bits, words of types, or of how many results are remembered."""
    return any(word in line for word in ("bits", "int", "complex", "<<", ">>", "lru_cache", "f16", "mantissa"))
