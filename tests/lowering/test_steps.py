"""The fields of steps, from what the text says of the instruction: kernels, collectives, transfers, memory."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from tests.lowering.hlo import ADD, kernel_named, lower_module_text, lower_text
from tpusim.hardware.load import load_chip
from tpusim.lowering.module import lower_module
from tpusim.semantics.verify.module import verify_module
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

MIB = 2**20
BIG = "f32[1024,1024]{1,0:T(8,128)}"
NEAR = "f32[1024,1024]{1,0:T(8,128)S(1)}"
WIDE = "f32[4096,1024]{1,0:T(8,128)}"
PART = "f32[256,1024]{1,0:T(8,128)}"


def fusion(called, operands=1, kind="kLoop", config=None, chip="v5e", result=BIG):
    """Return the kernel of a fusion ``y`` of some arrays of 4 MiB, whose computation has parameters ``p0`` ..."""
    names = range(operands)
    head = "\n".join(f"  %p{n} = {BIG} parameter({n})" for n in names)
    lines = [f"%a{n} = {BIG} parameter({n})" for n in names]
    stated = f", backend_config={json.dumps(config)}" if config else ""
    taken = ", ".join(f"%a{n}" for n in names)
    lines.append(f"ROOT %y = {result} fusion({taken}), kind={kind}, calls=%f{stated}")
    return kernel_named(lower_text("\n".join(lines), f"{ADD}%f {{\n{head}\n{called}\n}}\n", chip), "y")


NEGATE = f"  ROOT %r = {BIG} negate(%p0)"
DOT = f"  ROOT %r = {BIG} dot(%p0, %p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


@pytest.mark.parametrize(
    ("kind", "called", "operands", "category"),
    [
        ("kLoop", NEGATE, 1, "loop fusion"),
        ("kInput", NEGATE, 1, "input fusion"),
        ("kOutput", NEGATE, 1, "output fusion"),
        ("kCustom", NEGATE, 1, "custom fusion"),
        ("kOutput", DOT, 2, "convolution fusion"),
    ],
)
def test_a_fusion_is_called_what_the_profiler_calls_it(kind, called, operands, category):
    """By its kind, unless there is a product in it."""
    assert fusion(called, operands, kind).category == category


FAMILIES = {
    "vector": (NEGATE, 1, "vector"),
    "copy": (f"  ROOT %r = {BIG} transpose(%p0), dimensions={{1,0}}", 1, "copy"),
    "product": (DOT, 2, "product"),
    "custom call": (f'  ROOT %r = {BIG} custom-call(%p0), custom_call_target="Mystery"', 1, "custom call"),
}


@pytest.mark.parametrize(("called", "operands", "family"), FAMILIES.values(), ids=FAMILIES.keys())
def test_the_family_of_a_kernel_is_that_of_its_instructions(called, operands, family):
    """What moves only, what computes, what multiplies, what nobody knows."""
    assert fusion(called, operands).family == family


def test_a_convolution_with_a_window_is_of_a_family_of_its_own():
    """Taps add up in one row; without a window it is a product."""
    lines = "%a = f32[8,64,256] parameter(0)\n%b = f32[SIZE,256,256] parameter(1)\nROOT %y = f32[8,64,256] "
    call = "convolution(%a, %b), window={size=SIZE pad=PAD}, dim_labels=b0f_0io->b0f"
    families = []
    for size, pad in ((1, "0_0"), (3, "1_1")):
        text = (lines + call).replace("SIZE", str(size)).replace("PAD", pad)
        families.append(kernel_named(lower_text(text), "y").family)
    assert families == ["product", "convolution"]


OPERATIONS = {
    "two for each element": (f"  %n = {BIG} negate(%p0)\n  ROOT %r = {BIG} exponential(%n)", 1, 2 * MIB, 0),
    "none for a move": (f"  ROOT %r = {BIG} copy(%p0)", 1, 0, 0),
    "a product and its epilogue": (
        f"  %d = {BIG} dot(%p0, %p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        f"  ROOT %r = {BIG} negate(%d)",
        2,
        2 * 1024**3 + MIB,
        2 * 1024**3,
    ),
}


@pytest.mark.parametrize(("called", "operands", "flops", "product_flops"), OPERATIONS.values(), ids=OPERATIONS.keys())
def test_operations_asked_for_are_one_an_element_and_two_a_product(called, operands, flops, product_flops):
    """Before padding; those of products are known by themselves."""
    kernel = fusion(called, operands)
    assert (kernel.flops, kernel.product_flops) == (flops, product_flops)


def test_what_the_compiler_states_is_kept():
    """Its own cycles, its scratch and its tiles: two by three of the two dimensions."""
    window = {"estimated_cycles": "1234", "iteration_bounds": ["2", "3"]}
    scoped = [{"memory_space": "1", "offset": "0", "size": "65536"}]
    kernel = fusion(NEGATE, config={"window_config": window, "used_scoped_memory_configs": scoped})
    assert (kernel.compiler_cycles, kernel.scoped_vmem_bytes, kernel.tiles) == (1234, 65536, 6)


def test_tiles_follow_from_the_bounds_of_the_output():
    """128 rows and eight columns of registers in blocks of 16 by 3: eight by three."""
    window = {"output_window_bounds": ["16", "3"]}
    assert fusion(NEGATE, config={"window_config": window}).tiles == 24


def test_a_reduction_is_tiled_as_what_it_takes_in():
    """Blocks of 16 rows of registers of its operand."""
    called = "  %z = f32[] constant(0)\n  ROOT %r = f32[1024]{0:T(1024)} reduce(%p0, %z), dimensions={0}, to_apply=%add"
    window = {"output_window_bounds": ["16", "8"]}
    kernel = fusion(called, config={"window_config": window}, result="f32[1024]{0:T(1024)}")
    assert kernel.tiles == 8


@pytest.mark.parametrize(
    ("chip", "split", "tiles", "cores"),
    [("v4-megacore", "0", "4", 2), ("v4-megacore", None, "4", 1), ("v4-megacore", "0", "1", 1), ("v4", "0", "4", 1)],
)
def test_two_cores_share_the_tiles_that_the_compiler_split(chip, split, tiles, cores):
    """Not without a split, not a single tile, and not where a device is one core."""
    window = {"iteration_bounds": [tiles, "1"]}
    config = {"window_config": window} | ({"megacore_config": {"megacore_split_dim": split}} if split else {})
    assert fusion(NEGATE, config=config, chip=chip).cores == cores


COLLECTIVES = {
    # Operands in, four times as much out.
    "all-gather": (BIG, WIDE, "all-gather(%x), replica_groups={{0,1,2,3}}, dimensions={0}", 16 * MIB, 20 * MIB, 0),
    "reduce-scatter": (
        BIG,
        PART,
        "reduce-scatter(%x), replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=%add",
        4 * MIB,
        5 * MIB,
        MIB,
    ),
    "all-reduce": (BIG, BIG, "all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add", 4 * MIB, 8 * MIB, MIB),
    "from VMEM": (NEAR, BIG, "all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add", 4 * MIB, 4 * MIB, MIB),
    "to VMEM": (BIG, NEAR, "all-to-all(%x), replica_groups={{0,1,2,3}}, dimensions={0}", 4 * MIB, 4 * MIB, 0),
    "permute": (BIG, BIG, "collective-permute(%x), source_target_pairs={{0,1}}", 4 * MIB, 8 * MIB, 0),
}


@pytest.mark.parametrize(
    ("operand", "result", "call", "moved", "in_hbm", "sums"), COLLECTIVES.values(), ids=COLLECTIVES.keys()
)
def test_a_collective_reads_its_operands_and_writes_its_results(operand, result, call, moved, in_hbm, sums):
    """What moves is the larger side; HBM sees what lies in it; a reduction adds once for each element."""
    (step,) = lower_text(f"%x = {operand} parameter(0)\nROOT %z = {result} {call}", ADD).steps
    assert (step.n_bytes, step.hbm_bytes, step.flops) == (moved, in_hbm, sums)


def test_a_single_pair_is_a_transfer_between_two():
    """A group of one would be free."""
    text = f"%x = {BIG} parameter(0)\nROOT %z = {BIG} collective-permute(%x), source_target_pairs={{{{0,1}}}}"
    (step,) = lower_text(text).steps
    assert (step.group_size, step.pairs, step.groups) == (2, ((0, 1),), ())


def test_groups_at_once_are_the_devices_over_a_group():
    """Eight replicas in groups of two."""
    groups = "{{0,1},{2,3},{4,5},{6,7}}"
    text = f"""HloModule m, is_scheduled=true, replica_count=8

{ADD}
ENTRY %main {{
  %x = {BIG} parameter(0)
  ROOT %z = {BIG} all-reduce(%x), replica_groups={groups}, to_apply=%add
}}
"""
    (step,) = lower_module_text(text).steps
    assert (step.group_size, step.group_count) == (2, 4)


def test_a_prefetch_across_programs_is_marked():
    """The copy that a run before this one may have done."""
    state = f"({NEAR}, {BIG}, u32[]{{:S(2)}})"
    text = f"%x = {BIG} parameter(0)\n%s = {state} copy-start(%x), cross_program_prefetch_index=0\n"
    plain = text.replace(", cross_program_prefetch_index=0", "")
    marks = [lower_text(f"{lines}ROOT %d = {NEAR} copy-done(%s)").steps[0].is_prefetch for lines in (text, plain)]
    assert marks == [True, False]


def test_an_outfeed_sends_its_operand_and_an_infeed_takes_its_result():
    """Over the link to the host; what lies in VMEM does not touch HBM."""
    program = lower_text(f"""
        %t = token[] after-all()
        %i = ({NEAR}, token[]) infeed(%t)
        %v = {NEAR} get-tuple-element(%i), index=0
        %x = {BIG} negate(%v)
        ROOT %o = token[] outfeed(%x, %t), outfeed_shape={BIG}""")
    feeds = [step for step in program.steps if step.opcode in ("infeed", "outfeed")]
    assert [(step.to_host, step.n_bytes, step.hbm_bytes) for step in feeds] == [
        (False, 4 * MIB, 0),
        (True, 4 * MIB, 4 * MIB),
    ]


HALF = "f32[512,1024]{1,0:T(8,128)}"
LONG_WAY = f"""%body {{
  %s = (s32[], {HALF}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %v = {HALF} get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %w = {HALF} negate(%v)
  ROOT %u = (s32[], {HALF}) tuple(%next, %w)
}}
%condition {{
  %q = (s32[], {HALF}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %end = s32[] constant(3)
  ROOT %less = pred[] compare(%j, %end), direction=LT
}}
%once {{
  %p = {BIG} parameter(0)
  %n = {BIG} negate(%p)
  ROOT %c = {HALF} slice(%n), slice={{[0:512], [0:1024]}}
}}
%thrice {{
  %p2 = {BIG} parameter(0)
  %h = {HALF} slice(%p2), slice={{[0:512], [0:1024]}}
  %zero = s32[] constant(0)
  %t = (s32[], {HALF}) tuple(%zero, %h)
  %l = (s32[], {HALF}) while(%t), condition=%condition, body=%body
  ROOT %g = {HALF} get-tuple-element(%l), index=1
}}
"""


def test_a_loop_weighs_as_often_as_it_turns():
    """Of two branches the one that computes half as much three times is the longer."""
    text = f"""%x = {BIG} parameter(0)
      %k = s32[] parameter(1)
      ROOT %z = {HALF} conditional(%k, %x, %x), branch_computations={{%once, %thrice}}"""
    assert lower_text(text, LONG_WAY).steps[0].taken == 1


def test_a_tuple_that_is_returned_needs_a_table():
    """Two results of 4 MiB and 4 bytes an address, rounded up to what the chip rounds to."""
    program = lower_text(f"%x = {BIG} parameter(0)\n%y = {BIG} negate(%x)\nROOT %t = ({BIG}, {BIG}) tuple(%x, %y)")
    granule = load_chip("v5e").tuple_table_granule_bytes
    assert program.argument_bytes == 4 * MIB
    assert program.output_bytes == 8 * MIB + -(-8 // granule) * granule


def test_arguments_in_host_memory_take_none_of_the_chips():
    """The schedule copies them out of it where it wants them."""
    host = "f32[1024,1024]{1,0:T(8,128)S(5)}"
    program = lower_text(f"%x = {host} parameter(0)\n%w = {BIG} parameter(1)\nROOT %y = {BIG} negate(%w)")
    assert program.argument_bytes == 4 * MIB


@pytest.mark.parametrize(("tiled", "table"), [(True, "padded"), (False, "packed")])
def test_a_table_is_packed_only_where_no_array_is_tiled(tiled, table):
    """One tiled array among flat ones is enough for a table of the chip's granule; else two words an address."""
    flat = "f32[256]{0}"
    other = "f32[256]{0:T(256)}" if tiled else flat
    program = lower_text(
        f"%x = {flat} parameter(0)\n%y = {other} parameter(1)\nROOT %t = ({flat}, {other}) tuple(%x, %y)"
    )
    granule = load_chip("v5e").tuple_table_granule_bytes
    assert program.output_bytes - 2 * 1024 == {"padded": -(-8 // granule) * granule, "packed": 2 * 8}[table]


def test_a_program_is_named_without_the_folder_it_was_read_in():
    """So that it is the same wherever it was read; one that was built has no file."""
    text = f"HloModule m, is_scheduled=true\nENTRY %main {{\n  ROOT %x = {BIG} parameter(0)\n}}\n"
    module = parse_module(SourceText("/some/where/m.hlo", text))
    built = structs.replace(module, source=None)
    files = [lower_module(verify_module(each), load_chip("v5e")).file for each in (module, built)]
    assert files == ["m.hlo", ""]


LOADED = "f32[128,128]{1,0:T(8,128)}"


def loads_of(*operands: int) -> float:
    """Return the loads of a kernel that adds up two products of some of its operands, and perhaps one more operand."""
    taken = [f"%p{n} = {LOADED} parameter({n})" for n in range(1 + max(operands))]
    added = f"%p{operands[4]}" if len(operands) > 4 else "%d"
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    called = "\n".join(
        [
            *taken,
            f"%d = {LOADED} dot(%p{operands[0]}, %p{operands[1]}), {dims}",
            f"%e = {LOADED} dot(%p{operands[2]}, %p{operands[3]}), {dims}",
            f"%s = {LOADED} add(%d, %e)",
            f"ROOT %r = {LOADED} add(%s, {added})",
        ]
    )
    names = ", ".join(f"%p{n}" for n in range(len(taken)))
    entry = "\n".join([*taken, f"ROOT %y = {LOADED} fusion({names}), kind=kOutput, calls=%f"])
    kernel = kernel_named(lower_text(entry, f"%f {{\n{called}\n}}\n"), "y")
    return kernel.work.ops["load"] * kernel.tiles


def test_what_feeds_any_product_of_a_kernel_is_loaded_by_its_product_alone():
    """Two products of four arrays load as much as two of the same two; what is added to them is loaded beside them."""
    apart, alike, again = loads_of(0, 1, 2, 3, 4), loads_of(0, 1, 0, 1, 2), loads_of(0, 1, 2, 3, 0)
    assert apart == alike == again
    assert apart - loads_of(0, 1, 2, 3) == 128 * 128 / 1024


def test_a_custom_call_may_take_a_tuple_of_nothing():
    """A kernel sees no element of it, whatever it says of its body."""
    lines = ["%p = f32[8,128] parameter(0)", "%t = () tuple()"]
    for target in ("own", "tpu_custom_call"):
        call = f'ROOT %c = f32[8,128] custom-call(%p, %t), custom_call_target="{target}"'
        kernel = kernel_named(lower_text("\n".join([*lines, call])), "c")
        assert sum(stream.total_bytes for stream in kernel.streams) == 2 * 8 * 128 * 4
