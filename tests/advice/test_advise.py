"""The advisor: programs made worse on purpose, what is found in models, and rules on programs written by hand."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.house.source_tree import ROOT
from tpusim.advice.advise import advise
from tpusim.analysis.answers.findings import Finding, Findings
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import simulate
from tpusim.program.module import Program
from tpusim.program.steps import AnyStep, HostTransfer, Kernel, Loop
from tpusim.program.work import Matmul, Stream, Work
from tpusim.report.terminal.answers.advice import render_advice

TRACES = ROOT / "traces"
CHIP = load_chip("v5e")
PRODUCT = Kernel(name="p", opcode="dot", work=Work(matmuls=(Matmul(weight_rows=128, streamed_rows=1e5),)))
SLOW = {"gpt2_train_fsdp", "resnet50_train_b64", "resnet50_fwd_b32", "ring_matmul", "linalg_512"}
"""Models that take more than a few seconds to compile anew."""


def found_in(*steps: AnyStep) -> dict[str, Finding]:
    """Return what is found in some steps, by rule."""
    program = Program(name="p", chip="v5e", steps=steps)
    return {finding.rule: finding for finding in advise(program).findings}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rule"), [("padded", "padding"), ("wide", "cast to bf16"), ("mesh", "mesh order")], ids=lambda text: text
)
def test_what_was_made_worse_is_found_first(name, rule):
    """And saves what the program that was not made worse takes less, as the TPU compiler made it: within a fifth."""
    (bad,), (good,) = (TRACES.glob(f"worse/{name}_{which}.*") for which in ("bad", "good"))
    first = advise(bad).findings[0]
    assert first.rule == rule
    assert first.source.startswith("made_worse.py:")
    assert first.share == pytest.approx(1 - simulate(good).time_us / simulate(bad).time_us, rel=0.2)


@pytest.mark.slow
def test_models_and_pods_have_findings():
    """Four in five of those that are quick to compile, each finding with something that it saves."""
    paths = [path for path in sorted(TRACES.glob("*.hlo.txt.gz")) if path.name.partition(".")[0] not in SLOW]
    advice = [advise(path) for path in paths]
    assert sum(bool(found.findings) for found in advice) >= 0.8 * len(paths)
    assert all(one.saved_ps > 0 or one.saved_bytes > 0 for found in advice for one in found.findings)


def test_an_unrolled_loop_jumps_less_often():
    """Sixteen trips of a small kernel, eight at once: the jumps of fourteen are saved."""
    found = found_in(Loop(name="l", opcode="while", trips=16, body=(PRODUCT,)))["unroll"]
    assert found.saved_ps == 14 * round(CHIP.fixed.loop_iteration_seconds * 1e12)


def test_the_host_is_not_waited_for():
    """An infeed beside the product that follows it costs what it takes longer than that: nothing."""
    infeed = HostTransfer(name="i", opcode="infeed", n_bytes=1e6)
    long = Loop(name="l", opcode="while", trips=7, body=(PRODUCT,))
    found = found_in(infeed, long)["host transfers"]
    assert found.saved_ps == simulate(Program(name="p", chip="v5e", steps=(infeed,))).timeline.total_ps


def test_small_kernels_are_merged():
    """Ten kernels of a few registers each: one launch is left of ten."""
    small = [Kernel(name=f"k{n}", opcode="add", work=Work(ops={"vector": 8.0})) for n in range(10)]
    found = found_in(*small)["small kernels"]
    assert 0.8 < found.share < 0.95


def test_what_is_computed_again_is_kept():
    """A product that JAX recomputes is left away, and the HBM that its result takes is said."""
    result = Stream("r", "hbm", 1e6, is_output=True)
    again = Kernel(
        name="q", opcode="dot", op_name="jit(f)/rematted_computation/dot", work=PRODUCT.work, streams=(result,)
    )
    found = found_in(PRODUCT, again)["recomputation"]
    assert found.saved_bytes == -1_000_000
    assert found.after_ps == simulate(Program(name="p", chip="v5e", steps=(PRODUCT,))).timeline.total_ps


def test_small_blocks_are_found_first():
    """Of a product in blocks of 128, which wait for memory and for the arrays: with larger ones it takes a tenth."""
    pytest.importorskip("jaxlib")
    first = advise(ROOT / "tests/data/pallas/matmul_1024_b128.v5e.hlo.txt.gz").findings[0]
    assert first.rule == "block sizes"
    assert first.share == pytest.approx(0.9, abs=0.05)


def test_a_copy_is_read_where_it_lies():
    """A kernel that copies an array which another one reads: without it that one reads the first array."""
    copy = Kernel(
        name="c",
        opcode="copy",
        family="copy",
        streams=(Stream("a", "hbm", 1e7), Stream("c", "hbm", 1e7, is_output=True)),
    )
    reads = Kernel(name="r", opcode="dot", work=PRODUCT.work, streams=(Stream("c", "hbm", 1e7),))
    found = found_in(copy, reads)["copies"]
    assert found.after_ps == simulate(Program(name="p", chip="v5e", steps=(reads,))).timeline.total_ps


def test_nothing_is_found_where_nothing_is_wasted():
    """One large product."""
    assert found_in(PRODUCT) == {}


HIDDEN = """
HloModule hidden.v5e_2x4, is_scheduled=true, num_partitions=8

ENTRY %main (a: f32[1024,1024], b: f32[4096,4096]) -> (f32[1024,1024], f32[4096,4096]) {
  %a = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %b = f32[4096,4096]{1,0:T(8,128)} parameter(1)
  %sums = f32[1024,8192]{1,0:T(8,128)} all-gather(%a), channel_id=1, dimensions={1},
    replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true
  %work = f32[4096,4096]{1,0:T(8,128)} add(%b, %b)
  %more = f32[4096,4096]{1,0:T(8,128)} multiply(%READS, %work)
  %part = f32[1024,1024]{1,0:T(8,128)} slice(%sums), slice={[0:1024], [0:1024]}
  ROOT %both = (f32[1024,1024]{1,0:T(8,128)}, f32[4096,4096]{1,0:T(8,128)}) tuple(%part, %more)
}
"""


@pytest.mark.parametrize(("reads", "is_found"), [("work", True), ("grown", False)])
def test_a_collective_is_hidden_only_where_nothing_waits_for_it(tmp_path, reads, is_found):
    """An all-gather before two kernels: it can run beside those that do not read it."""
    text = HIDDEN.replace("%READS", f"%{reads}")
    if not is_found:
        grown = "  %grown = f32[4096,4096]{1,0:T(8,128)} reshape(%half)\n"
        half = "  %half = f32[1024,16384]{1,0:T(8,128)} concatenate(%sums, %sums), dimensions={1}\n"
        text = text.replace("  %work", f"{half}{grown}  %work")
    path = tmp_path / "hidden.v5e_2x4.hlo.txt"
    path.write_text(text)
    found = {finding.rule: finding for finding in advise(path).findings}
    assert ("hide collectives" in found) == is_found


@pytest.mark.parametrize(("count", "text"), [(1, "tried 1 change of 2 kinds"), (2, "tried 2 changes of 2 kinds")])
def test_one_change_is_one(count, text):
    """Changes that were tried are counted over all kinds."""
    console = Console(file=io.StringIO(), width=160)
    found = Findings(program="p", chip="v5e", time_ps=10**6, tried={"padding": count, "copies": 0}, findings=())
    render_advice(found, console)
    assert text in console.file.getvalue()
