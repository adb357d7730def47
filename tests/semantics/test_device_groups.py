"""Groups, pairs and algorithms of collectives, as numbers of devices."""

from __future__ import annotations

import re

import pytest

import tpusim
from tests.lowering.hlo import ADD, lower_module_text
from tpusim.errors import ProgramError
from tpusim.lowering.collectives import algorithm_of
from tpusim.numerics.collectives import group_of
from tpusim.numerics.site import Device, Settings, Site
from tpusim.program.steps import Algorithm
from tpusim.semantics.device_groups import channel_pairs, device_groups, device_pairs
from tpusim.semantics.verify.module import verify_module
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def module_of(line: str, head: str = "replica_count=2, num_partitions=4"):
    """Return a module for eight devices with one instruction named ``c``, and that instruction."""
    text = f"HloModule m, {head}\n\n{ADD}\nENTRY %main {{\n  %x = f32[8]{{0}} parameter(0)\n  ROOT %c = {line}\n}}\n"
    module = parse_module(SourceText("m.hlo", text))
    return module, module.entry["c"]


REDUCE = "f32[8]{0} all-reduce(%x), to_apply=%add"


ACROSS_REPLICAS = ((0, 4), (1, 5), (2, 6), (3, 7))
GLOBAL = f"{REDUCE}, channel_id=1, use_global_device_ids=true, replica_groups="
GROUPS = {
    REDUCE: ACROSS_REPLICAS,
    f"{REDUCE}, replica_groups={{{{1,0}}}}": ((4, 0), (5, 1), (6, 2), (7, 3)),
    f"{REDUCE}, channel_id=1, replica_groups={{{{0}},{{1}}}}": ((0, 1, 2, 3), (4, 5, 6, 7)),
    f"{REDUCE}, channel_id=1, replica_groups={{{{0,1}}}}": (tuple(range(8)),),
    f"{GLOBAL}{{{{0,2,4,6}},{{1,3,5,7}}}}": ((0, 2, 4, 6), (1, 3, 5, 7)),
    f"{GLOBAL}[2,4]<=[8]": ((0, 1, 2, 3), (4, 5, 6, 7)),
    f"{GLOBAL}[4,2]<=[4,2]T(1,0)": ((0, 2), (4, 6), (1, 3), (5, 7)),
    "f32[8]{0} all-to-all(%x), channel_id=1, dimensions={0}, replica_groups={{0,2},{1,3}}": (
        *((0, 2), (1, 3)),
        *((4, 6), (5, 7)),
    ),
    "f32[8]{0} all-to-all(%x), dimensions={0}, replica_groups={{0,1}}": ACROSS_REPLICAS,
}
"""By hand, from what XLA says of each mode, for two replicas of four partitions: device = 4 * replica + partition."""


@pytest.mark.parametrize("line", GROUPS)
def test_groups_of_every_mode(line):
    """Lists and iota; without a list all ids of the mode are one group."""
    assert device_groups(*module_of(line)) == GROUPS[line]


@pytest.mark.parametrize("number", range(8))
def test_a_device_finds_its_group(number):
    """Execution joins the devices that the time line joins."""
    module, instruction = module_of(f"{REDUCE}, replica_groups={{{{1,0}}}}")
    site = Site(module, module.entry, Settings(read_literal=lambda literal, shape: None), Device(*divmod(number, 4)))
    assert group_of(site, instruction) == (4 + number % 4, number % 4)


@pytest.mark.parametrize(
    ("channel", "pairs"),
    [("", ((0, 4), (1, 5), (2, 6), (3, 7))), (", channel_id=1", ((0, 1), (4, 5)))],
)
def test_pairs_are_of_replicas_or_partitions(channel, pairs):
    """With a channel they count partitions, in each replica."""
    line = f"f32[8]{{0}} collective-permute(%x), source_target_pairs={{{{0,1}}}}{channel}"
    assert device_pairs(*module_of(line)) == pairs


@pytest.mark.parametrize(
    ("stated", "pairs"),
    [
        ("", None),
        ('{_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}', ((0, 1), (1, 2))),
        ("{_xla_send_recv_source_target_pairs={{0,1},{1,2}}}", ((0, 1), (1, 2))),
        ('{a={_xla_send_recv_source_target_pairs="{{0,1}}"}}', None),
    ],
)
def test_pairs_of_a_send_are_read_from_its_attributes(stated, pairs):
    """In quotes, and without as XLA prints them; None says that anybody may come."""
    attributes = f", frontend_attributes={stated}" if stated else ""
    line = f"(f32[8]{{0}}, u32[], token[]) send(%x, %t), channel_id=1{attributes}"
    text = f"%t = token[] after-all()\n  %s = {line}\n  ROOT %c = f32[8]{{0}} copy(%x)"
    module = module_of("f32[8]{0} copy(%x)", "num_partitions=4")[0]
    source = module.source.text.replace("ROOT %c = f32[8]{0} copy(%x)", text)
    module = parse_module(SourceText("m.hlo", source))
    assert channel_pairs(module, module.entry["s"]) == pairs


@pytest.mark.parametrize(
    ("config", "algorithm"),
    [
        (
            '"emitter":"RotatedPincerEmitter","strategy":"UniDirectionNDRingStrategy","debug":"colors:6 phases:3"',
            Algorithm("RotatedPincerEmitter UniDirectionNDRingStrategy", lanes=6, one_way=True),
        ),
        (
            '"emitter":"RotatedPincerShortEmitter","strategy":"StrategyND","debug":"colors:3 phases:3"',
            Algorithm("RotatedPincerShortEmitter StrategyND", lanes=6),
        ),
        (
            '"emitter":"RotatedPincerEmitter","strategy":"UniDirection1DRingStrategy","debug":"colors:2 phases:1"',
            Algorithm("RotatedPincerEmitter UniDirection1DRingStrategy", one_ring=True, lanes=2, one_way=True),
        ),
        ('"emitter":"1DAllGatherOnMajorDim"', Algorithm("1DAllGatherOnMajorDim", one_ring=True)),
        (
            '"emitter":"SinglePhaseRingSumEmitter"',
            Algorithm("SinglePhaseRingSumEmitter", one_ring=True, single_phase=True),
        ),
    ],
)
def test_algorithms_of_the_compiler_are_read(config, algorithm):
    """As they stand in compiled programs."""
    line = f'{REDUCE}, backend_config={{"collective_algorithm_config":{{{config}}}}}'
    assert algorithm_of(module_of(line)[1]) == algorithm


def test_without_a_statement_there_is_no_algorithm():
    """Then the machine chooses."""
    assert algorithm_of(module_of(REDUCE)[1]) is None


def ragged_text(sizes: str) -> str:
    """Return a ragged all-to-all among four partitions whose rows for each are made as stated."""
    shape, table = "f32[16,128]{1,0:T(8,128)}", "s32[4]{0}"
    lines = [f"%x = {shape} parameter(0)", f"%o = {shape} parameter(1)", f"%n = {table} {sizes}"]
    lines += [
        f"ROOT %r = {shape} ragged-all-to-all(%x, %o, %n, %n, %n, %n), channel_id=1, replica_groups={{{{0,1,2,3}}}}"
    ]
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m, is_scheduled=true, num_partitions=4\n\nENTRY %main {{\n{body}\n}}\n"


def test_constant_sizes_of_a_ragged_exchange_are_used():
    """Of 16 rows 1, 2, 4 and 8 go to the members."""
    program = lower_module_text(ragged_text("constant({1, 2, 4, 8})"))
    step = next(step for step in program.steps if step.name == "r")
    assert (step.shares, program.warnings) == ((1 / 16, 2 / 16, 4 / 16, 8 / 16), ())


def test_sizes_that_values_tell_are_even_with_a_warning():
    """A parameter may be anything."""
    program = lower_module_text(ragged_text("parameter(2)"))
    assert next(step for step in program.steps if step.name == "r").shares == ()
    assert any("how much 'r' sends to whom depends on values" in warning for warning in program.warnings)


@pytest.mark.parametrize(("sizes", "sent_rows"), [("constant({1, 2, 4, 8})", 15), ("parameter(2)", 16)])
def test_a_ragged_exchange_sends_its_first_operand(sizes, sent_rows):
    """16 rows of 128 numbers of 4 bytes, however large the buffer is that they go to; HBM has those that are sent."""
    text = ragged_text(sizes).replace("%o = f32[16,", "%o = f32[64,").replace("%r = f32[16,", "%r = f32[64,")
    step = next(step for step in lower_module_text(text).steps if step.name == "r")
    assert (step.n_bytes, step.hbm_bytes) == (16 * 512, 2 * sent_rows * 512)


WRONG = [
    "f32[8]{0} all-reduce(%x), to_apply=%add, channel_id=1, use_global_device_ids=true, replica_groups={{0,1},{1,2}}",
    "f32[8]{0} all-reduce(%x), to_apply=%add, channel_id=1, use_global_device_ids=true, replica_groups={{0,9}}",
    "f32[8]{0} all-reduce(%x), to_apply=%add, channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}",
    "f32[8]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,2},{1,2}}",
    "f32[8]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1},{0,2}}",
    "f32[8]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,5}}",
    "f32[8]{0} collective-broadcast(%x), channel_id=1, replica_groups={{0,1},{1,2}}",
]


@pytest.mark.parametrize("line", WRONG)
def test_groups_that_the_verifier_refuses_are_not_run(line):
    """In the words of ``tpusim check``."""
    module, _ = module_of(line, "num_partitions=4")
    (problem,) = tpusim.check(module)
    with pytest.raises(tpusim.ProgramError, match=re.escape(problem)):
        tpusim.simulate(module, "v5e")


@pytest.mark.parametrize(
    "line",
    [
        f"{REDUCE}, channel_id=1, use_global_device_ids=true, replica_groups={{{{0,1,2}},{{3}}}}",
        "f32[8]{0} collective-broadcast(%x), channel_id=1, replica_groups={{0,1}}",
        "f32[8]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,0},{1,2}}",
    ],
)
def test_what_opcodes_allow_is_run(line):
    """An all-reduce of uneven groups, a broadcast that leaves devices out, a device that sends to itself."""
    module, _ = module_of(line, "num_partitions=4")
    assert tpusim.check(module) == []
    assert tpusim.simulate(module, "v5e").time_us > 0


PERMUTE = "f32[8]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}"
EXCHANGE = "f32[8]{0} all-to-all(%x), dimensions={0}, replica_groups={{0,1}}"
BROADCAST = "f32[8]{0} collective-broadcast(%x), replica_groups={{0,1}}"


@pytest.mark.parametrize("line", [PERMUTE, EXCHANGE, BROADCAST])
@pytest.mark.parametrize("channel", ["", ", channel_id=1"])
def test_partitions_of_a_module_that_states_replicas_alone_are_these(line, channel):
    """XLA's verifier skips a count of 1, which may mean that none is stated: there are two devices, not three."""
    assert tpusim.simulate(module_of(f"{line}{channel}", "replica_count=2")[0], "v5e").program.devices_needed == 2


@pytest.mark.parametrize("line", [PERMUTE, EXCHANGE, BROADCAST])
def test_more_ids_than_there_are_replicas_are_refused(line):
    """Whatever they are of."""
    text = line.replace("{0,1}", "{0,1,2,3}") if "groups" in line else line.replace("1,0}", "1,2}")
    with pytest.raises(ProgramError, match=r"groups_c5|collective_permute_c2|collective_broadcast_c3"):
        verify_module(module_of(f"{text}, channel_id=1", "replica_count=2")[0])
