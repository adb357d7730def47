"""What another compiler did, undone: values stay bit for bit, and nothing of its decisions is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.overwrites import overwrites
from tests.compiler.test_passes import flat, name_of
from tpusim.compiler.passes import compile_module, place_anew
from tpusim.compiler.target import Target
from tpusim.errors import UnsupportedError
from tpusim.hardware.load import load_chip
from tpusim.pipeline.schedules import front_end_form
from tpusim.pipeline.stages import check, execute, load, simulate
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.undo.defuse import defuse
from tpusim.undo.unplace import unplace
from tpusim.undo.untile import untile

FOLDER = Path(__file__).parents[1] / "data" / "numeric"
TRACES = Path(__file__).parents[2] / "traces"
COMPILED = sorted(FOLDER.glob("*.v5e.hlo.txt.gz"))


@pytest.mark.filterwarnings("ignore:a constant")
@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_what_is_undone_computes_the_same(path):
    """Bit for bit what the compiled program does, on the compiler's own programs."""
    stored = np.load(str(path).replace(".v5e.hlo.txt.gz", ".npz"))
    inputs = {name: stored[name] for name in stored if name.startswith("in")}
    module = load(path)
    plain = defuse(module)
    assert check(plain) == []
    before, after = (execute(m, inputs, chip="v5e") for m in (module, plain))
    for expected, found in zip(flat(before), flat(after), strict=True):
        assert expected.dtype == found.dtype
        assert expected.tobytes() == found.tobytes()


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_nothing_of_the_compiler_is_left(path):
    """No fusion, tile, memory space, asynchronous copy or schedule."""
    text = defuse(load(path)).text
    for word in ("fusion(", ":T(", "S(1)", "-start(", "is_scheduled", "window_config", "ConcatBitcast"):
        assert word not in text


UPDATED = """HloModule m

f {
  p = f32[8,128] parameter(0)
  ROOT r = f32[8,128] negate(p)
}

g {
  a = f32[8,128] parameter(0)
  b = f32[8,128] parameter(1)
  ROOT r = f32[8,128] subtract(a, b)
}

ENTRY e {
  p = f32[8,128] parameter(0)
  v = f32[8,128] fusion(p), kind=kLoop, calls=f
  s = ((f32[8,128], f32[8,128]), f32[8,128], s32[]) async-start(v, p), calls=g
  t = ((f32[8,128], f32[8,128]), f32[8,128], s32[]) async-update(s)
  u = ((f32[8,128], f32[8,128]), f32[8,128], s32[]) async-update(t)
  ROOT d = f32[8,128] async-done(u)
}
"""


def test_what_is_under_way_is_made_at_once_however_long_its_chain():
    """An update hands on what was started."""
    module = parse_module(SourceText("m.hlo", UPDATED))
    plain = defuse(module)
    assert check(plain) == []
    assert "async" not in plain.text
    x = np.arange(1024, dtype=np.float32).reshape(8, 128)
    assert np.array_equal(execute(plain, [x]), execute(module, [x]))
    assert simulate(module, "v5e").timeline.total_ps > 0


START = "((f32[4]), f32[2], s32[]) "
LATE = "((), (), s32[]) async-start(), calls=w"


@pytest.mark.parametrize("end", ["slice-done", "async-done"])
@pytest.mark.parametrize("update", ["", "slice-update(s)", "async-update(s)"])
@pytest.mark.parametrize("begin", ["slice-start(x), slice={[1:3]}", "async-start(x), calls=w"])
@pytest.mark.parametrize("attributes", ["", ", is_scheduled=true"])
def test_what_is_under_way_is_made_at_once_however_it_is_spelt(begin, update, end, attributes):
    """Each of start, update and end has a short form and a long one: XLA reads all of them as one program."""
    module = sliced(attributes, START + begin, START + update if update else "", end)
    x = np.arange(4, dtype=np.float32)
    assert execute(module, [x]).tolist() == [1, 2]
    plain = defuse(module) if module.is_scheduled else front_end_form(module)
    placed = unplace(module)
    assert [one.opcode for one in plain.entry] == [one.opcode for one in placed.entry] == ["parameter", "slice"]
    assert simulate(module, "v5e").timeline.total_ps > 0


@pytest.mark.parametrize("update", ["slice-update(s, x)", "async-update(s, x)"])
@pytest.mark.parametrize("attributes", ["", ", is_scheduled=true"])
def test_an_operand_that_comes_with_an_update_is_an_operand_in_each_spelling(update, attributes):
    """What is copied is then known of the computation alone."""
    module = sliced(attributes, LATE, START + update, "slice-done")
    x = np.arange(4, dtype=np.float32)
    assert execute(module, [x]).tolist() == execute(defuse(module), [x]).tolist() == [1, 2]
    assert simulate(module, "v5e").timeline.total_ps > 0


def test_a_call_waits_for_its_last_operand():
    """As what any other computation does that is started."""
    module = sliced("", "((), (), s32[]) call-start(), to_apply=w", START + "call-update(s, x)", "async-done")
    x = np.arange(4, dtype=np.float32)
    assert execute(module, [x]).tolist() == execute(defuse(module), [x]).tolist() == [1, 2]


def sliced(attributes, start, update, end):
    """Return a module that takes two of four numbers: a start, an update (or none), and the opcode of the end."""
    wrapped = "w {\n  x = f32[4] parameter(0)\n  ROOT n = f32[2] slice(x), slice={[1:3]}\n}\n"
    lines = [f"s = {start}", *([f"u = {update}"] if update else []), f"ROOT d = f32[2] {end}({'u' if update else 's'})"]
    called = wrapped if "=w" in start else ""
    entry = "\n  ".join(["x = f32[4] parameter(0)", *lines])
    return parse_module(SourceText("m.hlo", f"HloModule m{attributes}\n\n{called}\nENTRY e {{\n  {entry}\n}}\n"))


def test_a_fusion_that_was_started_is_undone():
    """What a short form is around counts as what a program has by itself."""
    text = UPDATED.replace("async-start(v, p), calls=g", "fusion-start(v, p), kind=kLoop, calls=g")
    plain = defuse(parse_module(SourceText("m.hlo", text)))
    assert [one.opcode for one in plain.entry] == ["parameter", "negate", "subtract"]


BEGUN = """HloModule m, num_partitions=2, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY e {
  x = f32[128,128] parameter(0)
  y = f32[128,128] parameter(1)
  s = f32[128,128] sine(y)
  START
  d = f32[128,128] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = f32[128,128] OPCODE-done(c)
  ROOT r = (f32[128,128], f32[128,128]) tuple(n, d)
}
"""
STARTS = {
    "copy": "c = (f32[128,128], f32[128,128], u32[]) copy-start(s)",
    "collective-permute": "c = (f32[128,128], f32[128,128]) collective-permute-start(s), channel_id=1,"
    " source_target_pairs={{0,1},{1,0}}",
    "negate": "c = ((f32[128,128]), f32[128,128], s32[]) negate-start(s)",
}


@pytest.mark.parametrize("opcode", STARTS)
def test_what_a_front_end_starts_is_made_at_once(opcode):
    """Else what is written from its start on would be taken to be written when it is waited for."""
    text = BEGUN.replace("START", STARTS[opcode]).replace("OPCODE", opcode)
    front = front_end_form(parse_module(SourceText("m.hlo", text)))
    assert check(front) == []
    opcodes = [one.opcode for one in front.entry]
    assert opcodes.count(opcode) == 1
    assert not any(one.endswith(("-start", "-done")) for one in opcodes)
    assert overwrites(compile_module(front, Target(load_chip("v3")))) == []


def test_what_another_core_runs_stays_beside_the_first():
    """Where it runs the program says."""
    text = UPDATED.replace("calls=g", 'calls=g, async_execution_thread="host"').replace(
        "fusion(p), kind=kLoop, calls=f", "negate(p)"
    )
    text = text.replace("}\n\nENTRY", '}, execution_thread="host"\n\nENTRY')
    front = front_end_form(parse_module(SourceText("m.hlo", text)))
    assert "async-done" in {one.opcode for one in front.entry}


GIVEN = """HloModule m, is_scheduled=true, buffer_donor={ (0, {}), (1, {}) }

f {
  p = f32[8,128] parameter(0)
  ROOT r = f32[8,128] custom-call(p), custom_call_target="mine", output_to_operand_aliasing={{}: (0, {})}
}

ENTRY e {
  p = f32[8,128] parameter(0)
  q = f32[8,128] parameter(1)
  v = f32[8,128] fusion(p), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}
  w = f32[8,128] custom-call(v), custom_call_target="mine", output_to_operand_aliasing={{}: (0, {})}
  ROOT n = f32[8,128] negate(w)
}
"""


def test_what_the_author_gives_away_and_writes_over_stays():
    """Donated arguments, and the operands of kernels by hand that their results lie in."""
    plain = defuse(parse_module(SourceText("m.hlo", GIVEN)))
    assert [donor.parameter for donor in plain.attributes["buffer_donor"]] == [0, 1]
    calls = [one for one in plain.entry if one.opcode == "custom-call"]
    assert [len(one.attributes["output_to_operand_aliasing"]) for one in calls] == [1, 1]


def test_what_the_compiler_wrote_over_is_forgotten():
    """What a fusion overwrites is for whoever fuses."""
    fused = GIVEN.replace(', custom_call_target="mine", output_to_operand_aliasing={{}: (0, {})}', "")
    plain = defuse(parse_module(SourceText("m.hlo", fused.replace("custom-call", "negate"))))
    assert "output_to_operand_aliasing" not in plain.text


def viewed(before: str, after: str):
    """Return a module whose result is a bitcast of its parameter."""
    lines = f"  x = {before} parameter(0)\n  ROOT y = {after} bitcast(x)\n"
    return parse_module(SourceText("m.hlo", f"HloModule m, is_scheduled=true\n\nENTRY e {{\n{lines}}}\n"))


def test_a_view_of_arrays_without_layouts_is_a_reshape():
    """In whatever order our compiler then lays them out, the elements stay where they were."""
    text = "HloModule m\n\nENTRY e {\n  x = bf16[7,3,257] parameter(0)\n  ROOT y = bf16[21,257,1] bitcast(x)\n}\n"
    front = front_end_form(parse_module(SourceText("m.hlo", text)))
    assert {"bitcast", "reshape"} & {one.opcode for one in front.entry} == {"reshape"}


@pytest.mark.parametrize(
    ("before", "after", "opcodes"),
    [
        ("f32[8,128]{1,0:T(8,128)}", "f32[1,8,128]{2,1,0:T(8,128)}", "reshape"),
        ("f32[8,128]{1,0:T(8,128)}", "f32[128,8]{0,1:T(8,128)}", "transpose"),
        ("f32[16,8,128]{2,1,0:T(8,128)}", "f32[8,128,16]{1,0,2:T(8,128)}", "transpose"),
        ("f32[1024]{0:T(1024)}", "f32[8,128]{1,0:T(8,128)}", "reshape"),
        # Tile by tile, two of them side by side in 8 rows.
        (
            "f32[8,256]{1,0:T(8,128)}",
            "f32[2,8,128]{2,1,0:T(8,128)}",
            "reshape transpose reshape reshape transpose reshape",
        ),
        ("s32[5]{0:T(128)}", "s32[4]{0:T(128)}", "slice"),
        ("f32[8,128]{1,0:T(8,128)}", "s32[8,128]{1,0:T(8,128)}", "bitcast-convert"),
    ],
)
def test_a_view_is_said_by_elements(before, after, opcodes):
    """XLA, Tiled layout: where elements lie says what the view has at each index; ``execute`` looks at the bytes."""
    module = viewed(before, after)
    plain = defuse(module)
    assert [i.opcode for i in plain.entry if i.opcode not in ("parameter", "copy")] == opcodes.split()
    parameter = module.entry.parameters[0].shape
    numbers = (
        np.arange(parameter.element_count)
        .reshape(parameter.dimensions)
        .astype({"f32": "f4", "s32": "i4"}[parameter.dtype.name])
    )
    assert execute(plain, [numbers]).tobytes() == execute(module, [numbers]).tobytes()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Padding would be seen.
        ("f32[5,128]{1,0:T(8,128)}", "f32[8,128]{1,0:T(8,128)}"),
        ("bf16[16,128]{1,0:T(8,128)(2,1)}", "s8[4096]{0:T(1024)(128)(4,1)}"),
    ],
)
def test_a_view_without_elements_is_refused(before, after):
    """With both shapes, and that its layouts cannot be undone."""
    with pytest.raises(UnsupportedError, match="its layouts cannot be undone"):
        defuse(viewed(before, after))


@pytest.mark.filterwarnings("ignore:a constant")
@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_what_is_placed_anew_computes_the_same(path):
    """Bit for bit, and ``check`` has nothing to say of it."""
    stored = np.load(str(path).replace(".v5e.hlo.txt.gz", ".npz"))
    inputs = {name: stored[name] for name in stored if name.startswith("in")}
    module, target = load(path), Target(load_chip("v5e"))
    placed = place_anew(unplace(untile(module, target.chip, 1)), target)
    assert check(placed) == []
    before, after = (execute(m, inputs, chip="v5e") for m in (module, placed))
    assert [array.tobytes() for array in flat(before)] == [array.tobytes() for array in flat(after)]


BYTES = """\
HloModule m, is_scheduled=true

ENTRY e {
  x = bf16[16,128]{1,0:T(8,128)(2,1)} parameter(0)
  y = s8[4096]{0:T(1024)(128)(4,1)} bitcast(x)
  a = ((s8[4096]{0:T(1024)(128)(4,1)}), s8[3072]{0:T(1024)(128)(4,1)S(1)}, u32[]) slice-start(y), slice={[0:3072]}
  b = ((s8[4096]{0:T(1024)(128)(4,1)}), s8[1024]{0:T(1024)(128)(4,1)S(1)}, u32[]) slice-start(y), slice={[3072:4096]}
  c = s8[3072]{0:T(1024)(128)(4,1)S(1)} slice-done(a)
  d = s8[1024]{0:T(1024)(128)(4,1)S(1)} slice-done(b)
  ROOT z = bf16[16,128]{1,0:T(8,128)(2,1)S(1)} custom-call(c, d), custom_call_target="ConcatBitcast"
}
"""


def test_what_comes_in_as_slices_of_bytes_is_the_array():
    """As the TPU compiler brings in weights; slices that leave something out have no such form."""
    for text in (BYTES, BYTES.replace("slice-done(a)", "async-done(a)")):
        (parameter,) = defuse(parse_module(SourceText("m.hlo", text))).entry
        assert str(parameter.shape) == "bf16[16,128]"
    with pytest.raises(UnsupportedError, match="its layouts cannot be undone"):
        defuse(parse_module(SourceText("m.hlo", BYTES.replace("[3072:4096]", "[2048:3072]"))))


def test_what_comes_in_as_slices_is_used_where_it_was():
    """The schedule stays, and nothing is joined in it."""
    module = unplace(parse_module(SourceText("m.hlo", BYTES)))
    assert [one.opcode for one in module.entry] == ["parameter"]


@pytest.mark.parametrize("text", [BYTES, BYTES.replace("(c, d)", "(d, c)")], ids=["as they lie", "turned"])
def test_slices_are_put_together_in_whatever_order_they_are_listed(text):
    """The TPU compiler lists them in any, and none of it is left, in HBM or not."""
    module = parse_module(SourceText("m.hlo", text))
    assert [one.opcode for one in defuse(module).entry] == ["parameter"]
    assert [one.opcode for one in unplace(module).entry] == ["parameter"]


SIDES = """\
HloModule m, is_scheduled=true

ENTRY e {
  x = f32[16,512]{0,1:T(8,128)} parameter(0)
  a = ((f32[16,512]{0,1:T(8,128)}), f32[16,256]{0,1:T(8,128)S(1)}, u32[]) slice-start(x), slice={[0:16], [256:512]}
  b = ((f32[16,512]{0,1:T(8,128)}), f32[16,256]{0,1:T(8,128)S(1)}, u32[]) slice-start(x), slice={[0:16], [0:256]}
  c = f32[16,256]{0,1:T(8,128)S(1)} slice-done(a)
  d = f32[16,256]{0,1:T(8,128)S(1)} slice-done(b)
  ROOT z = f32[16,512]{0,1:T(8,128)S(1)} custom-call(c, d), custom_call_target="ConcatBitcast"
}
"""


def test_slices_of_any_dimension_are_put_together():
    """They are of the one that is outermost in memory."""
    module = parse_module(SourceText("m.hlo", SIDES))
    for undone in (defuse(module), unplace(module)):
        assert [one.opcode for one in undone.entry] == ["parameter"]


def test_slices_that_leave_something_out_stay_joined_as_they_lie():
    """By themselves they no longer say that they are parts of one array."""
    text = SIDES.replace("f32[16,512]{0,1:T(8,128)}", "f32[16,1024]{0,1:T(8,128)}")
    module = parse_module(SourceText("m.hlo", text))
    x = np.arange(16 * 1024, dtype=np.float32).reshape(16, 1024)
    for undone in (defuse(module), unplace(module)):
        assert np.array_equal(execute(undone, [x]), x[:, :512])


STARTED = """\
HloModule m, is_scheduled=true, num_partitions=2

add {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}

ENTRY e {
  x = f32[8,128]{1,0:T(8,128)} parameter(0)
  p = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}, u32[], u32[]) collective-permute-start(x), channel_id=1, \
source_target_pairs={{0,1},{1,0}}
  r = f32[8,128]{1,0:T(8,128)} all-reduce-start(x), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, \
to_apply=add
  g = (f32[8,128]{1,0:T(8,128)}, f32[16,128]{1,0:T(8,128)}) all-gather-start(x), channel_id=3, replica_groups={{0,1}}, \
dimensions={0}, use_global_device_ids=true
  a = f32[8,128]{1,0:T(8,128)} collective-permute-done(p)
  b = f32[8,128]{1,0:T(8,128)} all-reduce-done(r)
  c = f32[16,128]{1,0:T(8,128)} all-gather-done(g)
  ROOT t = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}, f32[16,128]{1,0:T(8,128)}) tuple(a, b, c)
}
"""


def test_a_collective_that_was_started_is_made_once():
    """Neither its start nor its end stays behind beside it, though collectives stay without a user."""
    plain = defuse(parse_module(SourceText("m.hlo", STARTED)))
    assert check(plain) == []
    assert [i.opcode for i in plain.entry] == [
        *("parameter", "collective-permute", "all-reduce", "all-gather", "tuple")
    ]


def test_cores_share_what_they_did():
    """On a chip of two cores a kernel of a program for such a chip is split where it was."""
    module = load(TRACES / "gpt2_fwd_b8t1024.v5p.hlo.txt.gz")
    before, after = (
        {i.name for c in m.computations for i in c if i.backend_config.megacore_split_dim is not None}
        for m in (module, untile(module, load_chip("v5p"), 2))
    )
    assert before == after != set()


@pytest.mark.parametrize(("chip", "split"), [("v5e", ""), ("v5p", "0")])
def test_retiling_leaves_all_but_tiles(chip, split):
    """Every kernel is there in its place, states no tiles, and shares them where the chip has two cores."""
    module = load(TRACES / "lstm_b64t128.v5e.hlo.txt.gz")
    retiled = untile(module, load_chip(chip), 1)
    assert [i.name for i in retiled.entry] == [i.name for i in module.entry]
    fusions = [i for i in retiled.entry if i.opcode == "fusion"]
    assert fusions
    assert all(i.backend_config.window_config is None for i in fusions)
    assert {str(i.backend_config.megacore_split_dim) for i in fusions} == {split or "None"}


ARRAY = "f32[1024,1024]{1,0:T(8,128)}"
SCOPED = '"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"65536"}]'
BY_HAND = '"custom_call_config":{"body":"TUzvUg=="}'
CALL = 'custom_call_target="tpu_custom_call", backend_config'
STATED = f"""\
HloModule m, is_scheduled=true, num_partitions=2

%add {{
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %r = f32[] add(%p, %q)
}}

%less {{
  %s = f32[] parameter(0)
  %t = f32[] parameter(1)
  ROOT %l = pred[] compare(%s, %t), direction=LT
}}

%negated {{
  %x = {ARRAY} parameter(0)
  ROOT %n = {ARRAY} negate(%x)
}}

%written {{
  %y = {ARRAY} parameter(0)
  ROOT %c = {ARRAY} custom-call(%y), {CALL}={{{BY_HAND}}}
}}

ENTRY %main {{
  %a = {ARRAY} parameter(0)
  %fusion = {ARRAY} fusion(%a), kind=kLoop, calls=%negated, backend_config={{{SCOPED}}}
  %alone = {ARRAY} exponential(%fusion), backend_config={{{SCOPED}}}
  %sorted = {ARRAY} sort(%alone), dimensions={{1}}, to_apply=%less, backend_config={{{SCOPED}}}
  %around = {ARRAY} fusion(%sorted), kind=kCustom, calls=%written, backend_config={{{SCOPED}}}
  %by_hand = {ARRAY} custom-call(%around), {CALL}={{{BY_HAND},{SCOPED}}}
  ROOT %sum = {ARRAY} all-reduce(%by_hand), replica_groups={{{{0,1}}}}, to_apply=%add, backend_config={{{SCOPED}}}
}}
"""


def test_what_tiles_took_of_vmem_goes_with_them():
    """Code written by hand keeps its blocks, and a collective what it adds up in."""
    module = parse_module(SourceText("m.hlo", STATED))
    stated = {i.name for i in module.entry if i.backend_config.scoped_vmem_bytes}
    retiled = untile(module, load_chip("v5e"), 1)
    kept = {i.name for i in retiled.entry if i.backend_config.scoped_vmem_bytes}
    assert stated - kept == {"fusion", "alone", "sorted"}
    assert kept == {"around", "by_hand", "sum"}
