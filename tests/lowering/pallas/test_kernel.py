"""Pallas kernels as steps: blocks moved and code run, by the grid."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
from itertools import pairwise, product
from math import prod

import pytest

import tpusim
from tests.lowering.hlo import lower_text
from tests.lowering.pallas.bodies import COPY, PROGRAMS, body, call, kernels, program, when
from tpusim.cost.classes import class_cycles, part_cycles
from tpusim.cost.tile import alone_ps, floor_ps
from tpusim.hardware.load import load_chip
from tpusim.ir import mosaic
from tpusim.ir.mosaic import Unreadable
from tpusim.lowering.pallas.kernel import MOST_STEPS
from tpusim.program.work import Work
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

pytest.importorskip("jaxlib")

BLOCK = 128 * 128 * 4
LESS = '%if = "stable_mosaic.arith.cmpi"(%a1, %a0) {predicate = 3 : i64} : (i32, i32) -> i1'
"""Column at most row: a causal mask of blocks."""


def kernel_of(encoded, **estimate):
    """Return the kernel of one call."""
    (kernel,) = call(encoded, **estimate).steps
    return kernel


def test_the_largest_grid_takes_little_memory():
    """As much as any input may beside its own size, though each of its steps is looked at."""
    encoded = body(when(LESS, COPY), grid=(1024, MOST_STEPS // 1024))
    tracemalloc.start()
    kernel = kernel_of(encoded)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(each.tiles for each in kernel.classes) == MOST_STEPS
    assert most_bytes < 64 * 2**20


def in_a_fusion(encoded, operand="parameter(0)"):
    """Return the program of a fusion that holds one call, of the name ``k``, and what it is called on."""
    shape, config = "f32[512,1024]{1,0:T(8,128)}", json.dumps({"custom_call_config": {"body": encoded}})
    line = f'ROOT %k = {shape} custom-call(%p), custom_call_target="tpu_custom_call", backend_config={config}'
    fused = f"%f {{\n  %p = {shape} {operand}\n  {line}\n}}\n"
    taken = "%x" if operand == "parameter(0)" else ""
    return lower_text(f"%x = {shape} parameter(0)\nROOT %y = {shape} fusion({taken}), kind=kCustom, calls=%f", fused)


def test_steps_of_the_grid_are_the_tiles():
    """And each fetches and writes a block of its own."""
    kernel = kernel_of(body(COPY))
    assert (kernel.tiles, kernel.basis) == (32, "body")
    assert [(s.block_bytes, s.fetches, s.is_output) for s in kernel.streams] == [(BLOCK, 32, False), (BLOCK, 32, True)]


@pytest.mark.parametrize(("windows", "fetches"), [("%a0, %a0", 4), ("%a1, %a0", 32), ("%a1, %a1", 32)])
def test_a_block_that_does_not_change_is_not_fetched(windows, fetches):
    """What depends on the outer dimension only stays for all steps of the inner one."""
    kernel = kernel_of(body(COPY, transforms=(windows, "%a0, %a1")))
    assert kernel.streams[0].fetches == fetches


def test_blocks_are_fetched_as_a_walk_over_the_grid_finds_them():
    """A block that a mask skips is the first one again, as JAX's flash attention has it."""
    zero = '%z = "stable_mosaic.arith.constant"() {value = 0 : i32} : () -> i32'
    chosen = '%s = "stable_mosaic.arith.select"(%if, %a1, %z) : (i1, i32, i32) -> i32'
    kernel = kernel_of(body(COPY, transforms=(f"{LESS};{zero};{chosen};%z, %s", "%a0, %a1")))
    blocks = [j if j <= i else 0 for i, j in product(range(4), range(8))]
    changes = 1 + sum(a != b for a, b in pairwise(blocks))
    assert kernel.streams[0].fetches == changes


def test_code_behind_a_condition_runs_in_the_steps_where_it_holds():
    """Counted by a walk; the classes are all steps."""
    kernel = kernel_of(body(when(LESS, COPY)))
    taken = sum(j <= i for i, j in product(range(4), range(8)))
    assert sum(c.tiles for c in kernel.classes) == 32
    assert sum(c.tiles * c.runs[0] for c in kernel.classes) == taken
    assert kernel.work.ops["load"] * 32 == pytest.approx(taken * 128 * 128 / 1024)


def test_a_loop_runs_its_body_as_often_as_it_says():
    """Even where that differs from step to step, and a condition looks at its counter."""
    zero, one = (f'%n{n} = "stable_mosaic.arith.constant"() {{value = {n} : i32}} : () -> i32' for n in (0, 1))
    inner = when('%if = "stable_mosaic.arith.cmpi"(%n, %a0) {predicate = 0 : i64} : (i32, i32) -> i1', COPY)
    loop = (
        f'{zero}\n{one}\n"stable_mosaic.scf.for"(%n0, %a1, %n1) ({{ ^bb0(%n: i32):\n{inner}\n'
        '"stable_mosaic.scf.yield"() : () -> () }) : (i32, i32, i32) -> ()'
    )
    kernel = kernel_of(body(loop))
    runs = sum(n == i for i, j in product(range(4), range(8)) for n in range(j))
    assert sum(c.tiles * c.runs[0] for c in kernel.classes) == runs


def test_classes_have_the_mean_work_of_all_tiles():
    """So that a report of units and one of classes agree."""
    (kernel,) = kernels("flash_2048_b512.v5e")
    for unit, ops in kernel.work.ops.items():
        parts = [sum(stage.ops.get(unit, 0.0) for stage in part.stages) for part in kernel.parts]
        run = sum(c.tiles * sum(r * p for r, p in zip(c.runs, parts, strict=True)) for c in kernel.classes)
        assert run == pytest.approx(ops * kernel.tiles)


@pytest.mark.parametrize("size", [128, 512])
def test_causal_attention_multiplies_only_what_lies_below_the_diagonal(size):
    """Two products for each pair of blocks, of which a step does those at or below it."""
    (kernel,) = kernels(f"flash_2048_b{size}.v5e")
    blocks = 2048 // size
    assert kernel.product_flops == 8 * blocks * (blocks + 1) / 2 * 4 * size * size * 128


def test_a_product_of_matrices_fetches_what_its_grid_asks_for():
    """Both operands in every step of the 8 x 8 x 8, the result once per pair of blocks; in closed form."""
    (kernel,) = kernels("matmul_1024_b128.v5e")
    assert [(s.fetches, s.block_bytes) for s in kernel.streams] == [(512, 32768), (512, 32768), (64, 32768)]
    assert kernel.flops == 2 * 1024**3


@pytest.mark.parametrize(
    ("name", "measured_us"),
    [("matmul_1024_b128.v5e", 297.666 - 100), ("matmul_4096_b512.v5e", 889.088 - 100)],
)
def test_products_take_what_the_documentation_measures(name, measured_us):
    """JAX documentation, Pallas: Matrix Multiplication, stored outputs on v5e; 0.1 ms of them is dispatch."""
    assert tpusim.simulate(program(name)).summary.total_ps / 1e6 == pytest.approx(measured_us, rel=0.15)


def test_small_blocks_of_attention_wait_for_chains_as_they_were_measured_to():
    """jax-ml/jax issue 24633, v5e: 0.553 us a step of 128 x 128; the report has half the depth of a head."""
    chip = load_chip("v5e")
    (kernel,) = kernels("flash_2048_b128.v5e")
    busiest = max(class_cycles(kernel, tiles, chip) for tiles in kernel.classes) / chip.clock_hz
    assert busiest == pytest.approx(0.553e-6, rel=0.2)


def test_parallel_dimensions_are_shared_by_the_cores_of_a_chip():
    """Both of v5p, which is one device."""
    (kernel,) = kernels("matmul_4096_b512.v5p")
    assert kernel.cores == 2


def test_constants_that_a_kernel_looks_up_say_which_blocks_it_skips():
    """Splash attention's table of blocks: ten of 16 at or below the diagonal, and nothing is assumed."""
    found = program("splash_2048.v5p")
    forward = next(step for step in found.every_step if "fwd" in step.name)
    assert forward.product_flops == 8 * 10 * 4 * 512 * 512 * 128
    assert not any("only data decides" in text for text in found.warnings)


def test_scalars_that_nobody_knows_give_a_warning_for_conditions_only():
    """Blocks that are looked up are taken to be different ones."""
    (kernel,) = kernels("gather.v5e")
    assert kernel.streams[0].fetches == 16
    assert program("gather.v5e").warnings == ()


def test_what_a_kernel_copies_itself_is_traffic():
    """One megabyte in by its own transfer, one out as a block."""
    (kernel,) = kernels("twice.v6e")
    assert [(s.total_bytes, s.is_output) for s in kernel.streams] == [(2**20, True), (2**20, False)]


def test_what_a_kernel_copies_itself_needs_no_blocks():
    """From one array in HBM to another on the same device: its compiler states no VMEM for it."""
    (kernel,) = kernels("ring.v5e_2x2")
    assert sum(stream.total_bytes for stream in kernel.streams)
    assert (kernel.scoped_vmem_bytes, kernel.vmem_bytes) == (0, 0)


@pytest.mark.parametrize("name", ["flash_2048_b512.v5e", "flash_2048_b128.v5e"])
def test_no_kernel_takes_less_than_it_states(name):
    """JAX's own cost estimates: all products of the kernel at the peak of the chip."""
    chip = load_chip("v5e")
    (kernel,) = kernels(name)
    assert kernel.flops == kernel.floor.flops > 0
    assert alone_ps(kernel, chip) >= floor_ps(kernel, chip) > kernel.flops / 197.1e12 * 1e12


@pytest.mark.parametrize(("stated", "asked"), [("17280532480", 10 * 4), ("4294967296", 4 * 4)])
def test_a_kernel_does_no_more_than_its_blocks_below_the_diagonal(stated, asked):
    """Ten of 16 blocks, two products each; JAX states all of them. Of one that states fewer that many are asked for."""
    text = gzip.decompress((PROGRAMS / "flash_2048_b512.v5e.hlo.txt.gz").read_bytes()).decode()
    text = text.replace("17280532480", stated)
    use = tpusim.simulate(parse_module(SourceText("flash", text)), "v5e").summary.utilisation
    of_a_block = 8 * 512 * 512 * 128
    assert use.model_flops == pytest.approx(asked * of_a_block)
    assert use.flops == pytest.approx(10 * 4 * of_a_block)
    assert use.flops / load_chip("v5e").peak_flops_per_second <= use.busy["matrix"] * use.total_ps / 1e12


def test_a_stated_cost_is_a_floor_for_a_body_that_does_less():
    """A copy that says that it takes a second's worth of operations."""
    chip = load_chip("v5e")
    kernel = kernel_of(body(COPY), flops=10**14, transcendentals=0, bytes_accessed=0)
    assert alone_ps(kernel, chip) >= 10**14 / chip.peak_flops_per_second * 1e12


def test_an_operation_that_no_rule_knows_is_costed_and_named():
    """One operation for each of sixteen registers, and a warning."""
    line = '%w = "stable_mosaic.tpu.frobnicate"(%v) : (vector<128x128xf32>) -> vector<128x128xf32>\n'
    found = call(
        body(COPY.replace('"stable_mosaic.tpu.vector_store"(%v', f'{line}"stable_mosaic.tpu.vector_store"(%w'))
    )
    assert found.steps[0].work.ops["vector"] == 16
    assert found.warnings == ("kernel.7: tpu.frobnicate has no cost of its own: one operation per register",)


@pytest.mark.parametrize(("estimate", "basis"), [({"flops": 10**9}, "stated cost"), ({}, "bytes")])
def test_a_body_that_cannot_be_read_is_told_of(monkeypatch, estimate, basis):
    """The kernel then takes what it states, or its bytes."""

    def refuse(encoded):
        raise Unreadable("no reader today")

    monkeypatch.setattr(mosaic, "_READERS", [refuse])
    found = call(f"none{basis}", **estimate)
    assert found.steps[0].basis == basis
    assert f"by its {basis}" in found.unsupported[0].how


def test_code_of_the_sparse_cores_is_not_taken_for_the_core_s():
    """Its vectors are of other units; its bytes bound its time, and the report says why."""
    shape = "f32[512,1024]{1,0:T(8,128)}"
    config = json.dumps({"custom_call_config": {"body": body(COPY), "device_type": "DEVICE_TYPE_SPARSECORE"}})
    line = f'custom-call(%x), custom_call_target="tpu_custom_call", backend_config={config}'
    found = lower_text(f"%x = {shape} parameter(0)\nROOT %kernel.7 = {shape} {line}")
    assert found.steps[0].basis == "bytes"
    assert "sparse cores" in found.unsupported[0].how


def test_a_kernel_is_registered_by_its_own_name(registered):
    """Before the target that all hand-written kernels share."""
    registered("kernel", cost=lambda instruction, chip: Work(ops={"vector": 5e6}))
    registered("tpu_custom_call", cost=lambda instruction, chip: Work(ops={"vector": 7e6}))
    kernel = kernel_of(body(COPY))
    assert kernel.work.ops["vector"] * kernel.tiles == pytest.approx(5e6)


def test_stages_of_a_part_and_its_longest_chain_add_up():
    """R. L. Graham, 1966: the busiest unit of each stage, and what waits for each other."""
    chip = load_chip("v5e")
    kernel = kernel_of(body(COPY))
    (part,) = kernel.parts
    assert part_cycles(part, chip) == part.depth_cycles + max(16 / chip.vpu.load_slots, 16 / chip.vpu.store_slots)
    assert part.depth_cycles == chip.vector_ops.latency["load"] + chip.vector_ops.latency["store"]


def test_registers_that_hold_the_same_are_computed_once():
    """A counter along rows differs from one eight of rows to the next, and not along lanes."""
    counted = (
        '%i = "stable_mosaic.tpu.iota"() {dimensions = array<i32: 0>} : () -> vector<128x256xi32>\n'
        '%s = "stable_mosaic.arith.addi"(%i, %i) : (vector<128x256xi32>, vector<128x256xi32>) -> vector<128x256xi32>\n'
    )
    assert kernel_of(body(counted)).work.ops["vector"] == 2 * 128 / 8


def test_a_grid_of_a_million_steps_is_a_handful_of_classes():
    """No step is looked at by itself."""
    kernel = kernel_of(body(when(LESS, COPY), grid=(1024, 1024)))
    assert (kernel.tiles, len(kernel.classes) <= 8) == (prod((1024, 1024)), True)


def test_steps_that_are_all_different_are_taken_as_their_mean():
    """A loop that runs as often as the number of the step says, in a grid of more steps than kinds are told apart."""
    zero, one = (f'%n{n} = "stable_mosaic.arith.constant"() {{value = {n} : i32}} : () -> i32' for n in (0, 1))
    loop = (
        f'{zero}\n{one}\n"stable_mosaic.scf.for"(%n0, %a1, %n1) ({{ ^bb0(%n: i32):\n{COPY}\n'
        '"stable_mosaic.scf.yield"() : () -> () }) : (i32, i32, i32) -> ()'
    )
    (found,) = kernel_of(body(loop, grid=(2, 1000))).classes
    assert (found.tiles, found.runs) == (2000, (pytest.approx(999 / 2),))


def test_what_a_loop_hands_from_turn_to_turn_is_followed():
    """A slot that changes at each turn: code for one of two runs at every other one."""
    names = (f'%n{n} = "stable_mosaic.arith.constant"() {{value = {n} : i32}} : () -> i32' for n in (0, 1, 5))
    inner = when('%if = "stable_mosaic.arith.cmpi"(%slot, %n1) {predicate = 0 : i64} : (i32, i32) -> i1', COPY)
    other = '%next = "stable_mosaic.arith.subi"(%n1, %slot) : (i32, i32) -> i32'
    loop = (
        f'{chr(10).join(names)}\n%last = "stable_mosaic.scf.for"(%n0, %n5, %n1, %n0) ({{ ^bb0(%n: i32, %slot: i32):\n'
        f'{inner}\n{other}\n"stable_mosaic.scf.yield"(%next) : (i32) -> () }}) : (i32, i32, i32, i32) -> i32'
    )
    kernel = kernel_of(body(loop))
    assert sum(c.tiles * c.runs[0] for c in kernel.classes) == 32 * 2


def test_explain_shows_the_kinds_of_steps_and_those_that_are_skipped():
    """Of the sixteen pairs of blocks six lie above the diagonal, for each of eight heads."""
    found = tpusim.explain(PROGRAMS / "flash_2048_b512.v5e.hlo.txt.gz", "flash_attention.1")
    assert (found.basis, found.floor_ps > 0, found.vmem_bytes > 0) == ("body", True, True)
    assert sum(kind.tiles for kind in found.kinds if kind.is_skipped) == 8 * 6
    assert "skips     48 of its tiles" in str(found)


def test_copies_of_its_own_wait_for_the_memory_each():
    """At least its latency beside the bytes."""
    chip = load_chip("v6e")
    (kernel,) = kernels("twice.v6e")
    moving_ps = 2**21 / chip.hbm.bandwidth_bytes_per_second * 1e12
    assert alone_ps(kernel, chip) > moving_ps + 2 * chip.dma.fixed_latency_seconds * 1e12


def test_the_report_says_what_the_times_of_such_kernels_are_made_of(monkeypatch):
    """Their bodies; without jaxlib what they state, and then what to install."""
    path = PROGRAMS / "flash_2048_b512.v5e.hlo.txt.gz"
    assert "1 timed by body" in str(tpusim.simulate(path))
    mosaic.read_body.cache_clear()
    monkeypatch.setitem(sys.modules, "jaxlib.mlir", None)
    without = tpusim.simulate(path)
    assert "1 timed by stated cost" in str(without)
    assert "by its stated cost (jaxlib" in without.program.unsupported[0].how
    assert without.summary.total_ps >= 17.18e9 / 197e12 * 1e12


@pytest.mark.parametrize("schedule", ["given", "retiled", "compiled"])
def test_a_kernel_keeps_its_body_whoever_compiles_the_program(schedule):
    """It is part of the program, and not of how that was compiled."""
    found = tpusim.lower(PROGRAMS / "gather.v5e.hlo.txt.gz", schedule=schedule)
    assert [step.basis for step in found.every_step if getattr(step, "basis", "")] == ["body"]


def test_a_lowered_kernel_survives_being_saved(tmp_path):
    """Its parts and classes are plain data."""
    found = program("flash_2048_b512.v5e")
    tpusim.save_program(found, tmp_path / "p.json")
    assert tpusim.load_program(tmp_path / "p.json").steps == found.steps


def test_a_kernel_inside_a_fusion_is_the_same_as_outside():
    """Where nothing is fused with it, its blocks move and its body runs as those of the call by itself do."""
    found = in_a_fusion(body(COPY))
    (kernel,), (alone,) = found.steps, call(body(COPY)).steps
    assert not found.unsupported
    assert (kernel.parts, kernel.classes, kernel.work) == (alone.parts, alone.classes, alone.work)
    assert [(s.total_bytes, s.space) for s in kernel.streams] == [(s.total_bytes, s.space) for s in alone.streams]


def test_a_constant_inside_a_fusion_is_an_operand_as_it_lies():
    """Nothing makes it, and its blocks are fetched."""
    (kernel,) = in_a_fusion(body(COPY), operand="constant({...})").steps
    assert (kernel.basis, len(kernel.parts)) == ("body", 1)
    assert kernel.streams[0].total_bytes == 512 * 1024 * 4


def test_what_is_registered_for_a_kernel_holds_inside_a_fusion_too(registered):
    """Its work is the user's, not that of its body."""
    registered("k", cost=lambda instruction, chip: Work(ops={"vector": 123_456.0}))
    (kernel,) = in_a_fusion(body(COPY)).steps
    assert kernel.work.ops["vector"] * kernel.tiles == pytest.approx(123_456)


def test_values_are_registered_by_the_name_of_a_kernel_too(registered):
    """As its cost is."""
    registered("kernel", numerics=lambda instruction, x: x * 2)
    config = json.dumps({"custom_call_config": {"body": body(COPY)}})
    line = f'custom-call(%x), custom_call_target="tpu_custom_call", backend_config={config}'
    text = f"HloModule m\n\nENTRY %main {{\n  %x = f32[4] parameter(0)\n  ROOT %kernel.7 = f32[4] {line}\n}}\n"
    module = parse_module(SourceText("m.hlo", text))
    assert tpusim.execute(module, [[1.0, 2.0, 3.0, 4.0]]).tolist() == [2.0, 4.0, 6.0, 8.0]


def test_what_is_fused_into_a_kernel_comes_in_and_is_computed_with_its_blocks():
    """The operand that it makes is never in memory: 4 MiB of f32 come in, by 8 blocks, and each is loaded and added."""
    (kernel,) = kernels("fused.v5e")
    assert (kernel.basis, kernel.product_flops) == ("body", 2 * 1024**3)
    moved = {stream.operand: (stream.total_bytes, stream.fetches) for stream in kernel.streams}
    assert moved["x.1"] == (4 * 1024**2, 8)
    assert "add_convert_fusion.1" not in moved
    made, _ = kernel.parts
    registers = 128 * 1024 / 1024
    assert sum(stage.ops["load"] for stage in made.stages) >= registers
    assert sum(stage.ops["vector"] for stage in made.stages) >= 2 * registers
    assert not any(stage.matmuls for stage in made.stages)
    assert sum(c.tiles * c.runs[0] for c in kernel.classes) == 8


@pytest.mark.parametrize(
    ("name", "op", "reason"),
    [
        ("matmul_1024_b128.v5e", "matmul.1", "waiting for blocks, 7"),
        ("flash_2048_b512.v5e", "flash_attention.1", "goes to matrix unit"),
        ("twice.v6e", "twice.1", "what the kernel copies itself"),
    ],
)
def test_explain_says_what_steps_take_their_time_for(name, op, reason):
    """And how to find better blocks, which a compiled kernel cannot have."""
    page = str(tpusim.explain(PROGRAMS / f"{name}.hlo.txt.gz", op))
    assert reason in page
    assert "tpusim.jax.tune" in page
