"""Hand-written kernels from the inside: kinds of steps, what holds them up, lines of their code, other blocks."""

from __future__ import annotations

import pytest

from tests.house.source_tree import ROOT
from tests.lowering.pallas.bodies import PROGRAMS
from tpusim.analysis.explained.body import BLOCKS
from tpusim.cost.classes import CHAIN
from tpusim.pipeline.answers.blocks import larger_blocks
from tpusim.pipeline.answers.explain import explain, explain_op
from tpusim.pipeline.stages import simulate
from tpusim.program.steps import Kernel
from tpusim.timeline.records import DEPENDENT

pytest.importorskip("jaxlib")

TUNING = ROOT / "traces" / "pallas" / "tuning"
FLASH, MATMUL = "flash_attention.1", "matmul.1"


def body_of(name, op):
    """Return what is inside of a kernel of a stored program."""
    return explain(PROGRAMS / f"{name}.hlo.txt.gz", op).body


KERNELS = sorted((ROOT / "tests" / "data" / "pallas_values").glob("*.hlo.txt.gz"))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.name.partition(".hlo")[0])
def test_every_kernel_with_values_is_explained(path):
    """Of all operations that bodies are made of: a page with the kernel's name."""
    result = simulate(path, "v5e", allow_overflow=True)
    for kernel in (step for step in result.program.every_step if isinstance(step, Kernel)):
        assert str(explain_op(result, kernel.name)).startswith(kernel.name)


def test_steps_at_the_ends_of_a_sum_are_a_prologue_and_an_epilogue():
    """Of 8 x 8 x 8 blocks the first of each sum sets it to zero, and the last one writes it."""
    kinds = {kind.name: kind for kind in body_of("matmul_1024_b128.v5e", MATMUL).kinds}
    assert {name: kind.steps for name, kind in kinds.items()} == {"steady": 384, "prologue": 64, "epilogue": 64}
    assert kinds["prologue"].where == ("dimension 2 first",)
    assert kinds["epilogue"].where == ("dimension 2 last",)


def test_steps_above_the_diagonal_are_skipped():
    """Of a causal mask over 4 x 4 blocks in 8 heads: six, of which those in the last column still write the result."""
    kinds = {kind.name: kind.steps for kind in body_of("flash_2048_b512.v5e", FLASH).kinds}
    assert kinds == {"steady": 8 * 5, "prologue": 8 * 4, "skipped": 8 * 3, "epilogue, skipped": 8 * 3, "epilogue": 8}


@pytest.mark.parametrize(("name", "op"), [("matmul_1024_b128.v5e", MATMUL), ("flash_2048_b128.v5e", FLASH)])
def test_what_holds_steps_up_is_their_time(name, op):
    """All kinds together take what the kernel does by itself, but for its launch and its first and last blocks."""
    found = explain(PROGRAMS / f"{name}.hlo.txt.gz", op)
    assert sum(kind.time_ps for kind in found.body.kinds) == pytest.approx(found.alone_ps, rel=0.01)


def test_lines_are_the_time_of_the_code():
    """What lines hold up is what units and chains hold up of all steps."""
    body = body_of("flash_2048_b512.v5e", FLASH)
    code = sum(
        kind.steps * kind.held_cycles.get(name, 0.0) for kind in body.kinds for name in (CHAIN, "matrix", "vector")
    )
    lines = sum(line.held_cycles.get(name, 0.0) for line in body.lines for name in (CHAIN, "matrix", "vector"))
    assert lines == pytest.approx(code)
    assert all("flash_attention.py:" in line.source for line in body.lines if line.source)


@pytest.mark.parametrize(
    ("name", "op", "hold"), [("flash_2048_b128.v5e", FLASH, CHAIN), ("matmul_4096_b512.v5e", MATMUL, "matrix")]
)
def test_what_a_step_waits_for_is_named(name, op, hold):
    """Small blocks of attention wait for results on their way, large ones of a product for the arrays."""
    first = body_of(name, op).kinds[0]
    assert max(first.held_cycles, key=lambda name: first.held_cycles[name]) == hold


@pytest.mark.parametrize(
    ("name", "op", "bound"),
    [
        ("capped_2048_b128.v5e", "capped.1", DEPENDENT),
        ("capped_2048_b512.v5e", "capped.1", "vector"),
        ("matmul_4096_b512.v5e", MATMUL, "matrix"),
    ],
)
def test_a_run_says_that_what_holds_most_steps_up_bounds_the_kernel(name, op, bound):
    """It is what the page about the kernel begins with."""
    result = simulate(PROGRAMS / f"{name}.hlo.txt.gz")
    assert next(group.bound_by for group in result.summary.ops if group.name == op) == bound
    held = dict.fromkeys((CHAIN, "vector", "matrix"), 0.0)
    for kind in explain_op(result, op).body.kinds:
        held |= {unit: held[unit] + kind.steps * kind.held_cycles.get(unit, 0.0) for unit in held}
    assert max(held, key=lambda unit: held[unit]) == (CHAIN if bound == DEPENDENT else bound)


def test_blocks_that_come_too_slowly_are_waited_for():
    """Two blocks of 32 KiB behind each 128 x 128 x 128 product: the memory's answer takes longer than that."""
    assert body_of("matmul_1024_b128.v5e", MATMUL).kinds[0].held_cycles[BLOCKS] > 0


def test_the_chain_begins_and_ends_with_the_blocks():
    """Both products of attention, and the reductions between them, wait for each other."""
    names = [link.operation for link in body_of("flash_2048_b128.v5e", FLASH).chain]
    assert names[0] == "load"
    assert names.count("matmul") == 2
    assert names.index("matmul") < names.index("multi_reduction") < names.index("exp")


@pytest.mark.parametrize(
    ("small", "large", "op", "counts", "within"),
    [
        (TUNING / "matmul_4096_b256", "matmul_4096_b512", MATMUL, (2, 2, 2), 0.001),
        (TUNING / "flash_b1h8t16384d128_b256", "flash_b1h8t16384d128_b512", FLASH, (1, 1, 2, 2), 0.03),
        (TUNING / "flash_b1h8t16384d128_b512", "flash_b1h8t16384d128_b1024", FLASH, (1, 1, 2, 2), 0.03),
        (PROGRAMS / "flash_2048_b128", "flash_2048_b512", FLASH, (1, 1, 4, 4), 0.06),
        (PROGRAMS / "capped_2048_b128", "capped_2048_b512", "capped.1", (1, 4, 4), 0.04),
    ],
)
def test_larger_blocks_take_what_the_compiled_kernel_with_them_does(small, large, op, counts, within):
    """As the TPU compiler has it; what is done once for each row of a block is not done for each of its columns."""
    result = simulate(f"{small}.v5e.hlo.txt.gz")
    (home,) = (one for one in result.module.computations if op in one.by_name)
    found = {one.tried.counts: one for one in larger_blocks(result.module, result.chip, home.name, op)}
    compiled = simulate(small.parent / f"{large}.v5e.hlo.txt.gz")
    alone_ps = next(record.duration_ps for record in compiled.timeline.records if record.name == op)
    assert 0.999 * alone_ps <= found[counts].tried.alone_ps <= (1 + within) * alone_ps


def test_blocks_that_do_not_fit_are_not_proposed():
    """Of 16 MiB."""
    result = simulate(PROGRAMS / "matmul_1024_b128.v5e.hlo.txt.gz")
    found = larger_blocks(result.module, result.chip, result.module.entry.name, MATMUL)
    assert found
    assert all(one.tried.vmem_bytes <= result.chip.vmem.kernel_bytes for one in found)


def test_the_page_says_what_to_do():
    """Kinds, units, lines, the chain, blocks with their times, and what would help."""
    text = str(explain(PROGRAMS / "flash_2048_b128.v5e.hlo.txt.gz", FLASH))
    for part in (
        "prologue",
        "matrix unit",
        "flash_attention.py:395",
        "one after another",
        "best of the blocks",
        "instead of",
    ):
        assert part in text


def test_steps_of_a_decomposition_are_not_written_by_hand():
    """A factor of the compiler's own has no blocks to choose, and no lines."""
    assert explain(ROOT / "traces" / "linalg_512.v7x.hlo.txt.gz", "custom-call.18").body is None
