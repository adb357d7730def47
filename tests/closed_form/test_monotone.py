"""No program becomes slower on a better machine, whoever chose its tiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tpusim.hardware.load import chip_facts
from tpusim.pipeline.stages import load, simulate
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.text.reader import read_source

TRACES = Path(__file__).parents[2] / "traces"
ROUNDING_PS = 3
"""For each record: parts of a step are rounded by themselves."""

TWICE = """
    mxu.count mxu.weight_load_rows_per_cycle mxu.result_registers_per_cycle mxu.lhs_rows_per_cycle mxu.rate_by_type.bf16
    vpu.alu_slots vpu.eup_slots vpu.xlu_units vpu.load_slots vpu.store_slots vpu.registers fixed.scalar_slots
    dma.buffers clock_hz hbm.bandwidth_bytes_per_second dma.vmem_bytes_per_second cmem.read_bytes_per_second
    cmem.write_bytes_per_second ici.link_bytes_per_second ici.local_bytes_per_second host.bandwidth_bytes_per_second
    host.all_chips_bytes_per_second
""".split()
HALF = """
    mxu.tile_switch_cycles mxu.result_latency_cycles mxu.parked_register_cycles vpu.xlu_cycles_per_op hbm.turn_cost
    dma.fixed_latency_seconds dma.issue_cycles dma.chunk_cost_bytes fixed.launch_seconds fixed.kernel_seconds
    fixed.tile_cycles fixed.scalar_op_cycles fixed.loop_iteration_seconds ici.launch_seconds ici.step_seconds
    ici.hop_latency_seconds host.latency_seconds
""".split()
NEARER_TO_ONE = ["mxu.efficiency", "hbm.efficiency", "hbm.write_efficiency", "ici.efficiency"]

PROGRAMS = """
    bert_base_b32t128.v3 dlrm_b2048.v5p gnn_n4096.v7x gpt2_fwd_b8t1024.v5p linalg_512.v7x lstm_b64t128.v5e mlp_b1024.v5e
    sampler_v32000.v6e sort_kv_1m.v5e llama1b_decode_b16s2048.v6e host/parameter_offload.v5e memory/fsdp.v5e_2x4
    memory/block_grad.v5p memory/embed.v5p memory/scatter_add.v5e memory/fft2.v7x memory/scan_remat.v3 memory/topk.v5e
    memory/convnet.v3 steps/js_mm_colrow.v5e_2x4 steps/jacobi_2d.v6e_1 steps/mock_v2b.v2_2x2 tilings/fusion.181.v3
    tilings/copy.24.v3 profiled/gemm_512.v7x profiled/matvec.v2 profiled/covariance.v6e
    measured/matmul_2048x4096_4096x1024_f16.v4 measured/matmul_1896x248_248x1896_bf16.v5e measured/selu_8x40x16_f16.v4
""".split()
# Of these we choose the tiles; each was slower on some better machine while a rule stood for their time.
OWN_TILES = """
    memory/xent.v3 memory/convnet.v3 memory/conv_grad.v3 memory/gru.v7x measured/matmul_1896x248_248x1896_bf16.v5e
    measured/matmul_512x512_512x512_int8.v6e measured/matmul_256x384_384x512_f16.v4
""".split()


def better(facts: dict) -> dict[str, float]:
    """Return by key what a better machine has instead."""
    found = {key: facts[key] * 2 for key in TWICE if key in facts}
    found |= {key: facts[key] / 2 for key in HALF if key in facts}
    return found | {key: (1 + facts[key]) / 2 for key in NEARER_TO_ONE}


def assert_none_is_slower(module) -> None:
    """Check all improvements one by one, and all at once."""
    before = simulate(module)
    improved = better({fact.key: fact.value for fact in chip_facts(before.chip.name)})
    total_ps, slack_ps = before.timeline.total_ps, ROUNDING_PS * len(before.timeline.records)
    for key, value in improved.items():
        after_ps = simulate(module, before.chip, overrides={key: value}).timeline.total_ps
        assert after_ps <= total_ps * (1 + 1e-9) + slack_ps, (key, value)
    assert simulate(module, before.chip, overrides=improved).timeline.total_ps < total_ps


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_improvement_of_a_machine_makes_a_program_slower(name):
    """As compiled, tiles stated by the compiler."""
    assert_none_is_slower(load(TRACES / f"{name}.hlo.txt.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_TILES)
def test_no_improvement_makes_tiles_of_our_own_slower(name):
    """The same text with nothing of the compiler's choices: lowering sees the better machine, and may choose anew."""
    source = read_source(TRACES / f"{name}.hlo.txt.gz")
    text = re.sub(r", backend_config=\{.*\}", "", source.text)
    assert_none_is_slower(parse_module(SourceText(source.name, text)))
