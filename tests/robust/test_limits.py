"""Counts from outside end where they are read, with what is allowed and what was found."""

from __future__ import annotations

import gzip
import json
from math import isfinite
from pathlib import Path

import pytest

import tpusim
from benchmarks.growth import PROGRAMS
from tests.cli.commands import output_of, refusal_of
from tests.growth import within
from tests.robust.contract import SURFACES, run_seeds
from tests.robust.counts import COUNTED
from tests.semantics.hlo import parse
from tpusim.errors import ConfigError, ProgramError, UnsupportedError
from tpusim.frontends.read import hlo_text
from tpusim.limits import (
    CHIPS,
    COMPUTED_INSTRUCTIONS,
    DEVICES,
    DEVICES_APART,
    EXECUTIONS,
    LAYERS,
    POINTS,
    QUEUE_DEPTH,
    SIDE,
    TILES,
)
from tpusim.program.layers import _CONVOLUTION_COLUMNS
from tpusim.semantics.host_memory import ARGUMENT_SPACES, stated_spaces
from tpusim.semantics.verify.module import verify_module

TRACES = Path(__file__).parents[2] / "traces"
MLP = str(TRACES / "mlp_b1024.v5e.hlo.txt.gz")
FED = str(TRACES / "host" / "train_from_infeed.v5e.hlo.txt.gz")
NINES = "9" * 400
LONG = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(COUNTED))
def test_every_count_of_a_format_keeps_the_contract(name):
    """At 0, 10^9, 2^31-1 and 2^63-1, each by itself: what a loop or memory would be taken for is bounded."""
    inputs = tuple(COUNTED[name]())
    assert run_seeds(SURFACES[name]._replace(inputs=inputs), range(len(inputs))).faults == []


@pytest.mark.parametrize(
    ("limit", "arguments"),
    [
        (CHIPS, ("run", MLP, "--topology", "v6e-99999999999999999999")),
        (CHIPS, ("run", MLP, "--topology", f"v6e:{NINES}x2")),
        (CHIPS, ("run", MLP, "--topology", "v6e:4x4*1000000000")),
        (QUEUE_DEPTH, ("run", FED, "--infeed-pace", "1us", "--queue-depth", "1000000000")),
        (SIDE, ("systolic", "--m", "10000000000", "--n", "1", "--k", "1")),
        (SIDE, ("systolic", "--m", "1" + "0" * 400, "--n", "1", "--k", "1")),
    ],
)
def test_a_count_of_the_command_line_ends_at_its_limit(capsys, limit, arguments):
    """What a loop would go through, or memory be taken for, is refused before."""
    assert f"expected {limit.what}, at most {limit.most}, found" in refusal_of(capsys, *arguments)


@pytest.mark.parametrize(
    "content",
    [b"x,y\n1,\xff\n", b"x,y\n1," + b"9" * (1 << 18), gzip.compress(b"x,y\n1,2\n", mtime=0)],
    ids=["binary", "long cell", "packed"],
)
@pytest.mark.parametrize(
    "kind", [("sensitivity",), ("pareto", "--x", "x", "--y", "y"), ("sweep", "--x", "x", "--y", "y")]
)
def test_what_is_no_table_of_points_is_not_drawn(capsys, tmp_path, content, kind):
    """Bytes that are no text, a cell beyond all bounds, a packed file."""
    path = tmp_path / "points.csv"
    path.write_bytes(content)
    said = refusal_of(capsys, "plot", *kind, str(path), "--output", str(tmp_path / "x.png"))
    assert "points.csv" in said
    assert "cannot read these points" in said


@pytest.mark.parametrize("pace", [f"{NINES}s", f"normal:1us:{NINES}us", f"exponential:{NINES}s:1", "2e6s"])
def test_a_pace_of_hundreds_of_digits_is_refused(capsys, pace):
    """No float holds it."""
    assert "expected seconds for an item of a feed, at most 1000000" in refusal_of(
        capsys, "run", FED, "--infeed-pace", pace
    )


@pytest.mark.parametrize("digits", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 4000, "x" + "9" * 999])
@pytest.mark.parametrize("key", ["mxu.count", "clock_hz", "hbm.capacity_bytes", "devices.0.clock"])
def test_a_figure_of_thousands_of_digits_is_refused(capsys, tmp_path, key, digits):
    """Python neither reads nor prints such numbers: as an override, in a chip's file and in a table of energies."""
    assert f"override: {key}: expected" in refusal_of(capsys, "run", MLP, "--override", f"{key}={digits}")
    path = tmp_path / "chip.toml"
    path.write_text(f'name = "chip"\nbase = "v5e"\n{key} = {digits}\n')
    assert str(path) in refusal_of(capsys, "run", MLP, "--chip", str(path))
    path = tmp_path / "table.yaml"
    path.write_text(f"ERT:\n  tables:\n  - name: {digits}\n")
    assert str(path) in refusal_of(capsys, "run", MLP, "--energy-table", str(path))


@pytest.mark.parametrize(
    "line",
    [
        "send(p, t), channel_id=1, frontend_attributes="
        f'{{_xla_send_recv_source_target_pairs="{{{{0,{NINES * 12}}}}}"}}',
        "convolution(l, r), window={size=1x1}, dim_labels=b01f_01io->b01f,"
        f" sparsity_config={{rhs={{sparsity=1x{NINES * 12}}}}}",
    ],
)
def test_a_number_within_an_attribute_of_thousands_of_digits_is_refused(capsys, tmp_path, line):
    """Python reads no such number: of a device in pairs of a send, of a kernel's sparsity."""
    shape = "(f32[8], u32[], token[])" if line.startswith("send") else "f32[1,8,8,8]"
    path = tmp_path / "case.hlo.txt"
    path.write_text(
        f"""HloModule m, num_partitions=2

ENTRY e {{
  p = f32[8] parameter(0)
  l = f32[1,8,8,4] parameter(1)
  r = f32[1,1,4,8] parameter(2)
  t = token[] after-all()
  s = {shape} {line}
}}
"""
    )
    assert "case.hlo.txt:8" in refusal_of(capsys, "check", str(path))


@pytest.mark.parametrize("sizes", [[NINES * 12], [NINES] * 12], ids=["one axis", "many axes"])
def test_a_mesh_of_thousands_of_digits_has_more_devices_than_there_can_be(capsys, tmp_path, sizes):
    """What Shardy says of a region is text to all others, and is read where the region is cut up."""
    axes = ", ".join(f'\\"{number}\\"={size}' for number, size in enumerate(sizes))
    path = tmp_path / "case.hlo.txt"
    path.write_text(
        f"""HloModule m, frontend_attributes={{xla.sdy.meshes="{{mesh = #sdy.mesh<[{axes}]>}}"}}

ENTRY e {{
  x = f32[8] parameter(0)
  y = f32[8] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape"
}}
"""
    )
    refusal = refusal_of(capsys, "run", str(path), "--chip", "v5e")
    assert "case.hlo.txt:5" in refusal
    assert "y: expected a number of devices, at most 65536" in refusal


@pytest.mark.parametrize("colors", ["2", NINES * 12])
def test_an_algorithm_of_however_many_rings_runs(colors):
    """The TPU compiler says how it carries a sum out in words of its own, which are read as far as they go."""
    config = f'{{"collective_algorithm_config":{{"emitter":"RotatedPincerEmitter","debug":"colors:{colors}"}}}}'
    module = parse(
        f"""HloModule m, is_scheduled=true, replica_count=2

add {{
  a = f32[]{{:T(128)}} parameter(0)
  b = f32[]{{:T(128)}} parameter(1)
  c = f32[]{{:T(128)}} add(a, b)
}}

ENTRY e {{
  x = f32[1024]{{0:T(1024)}} parameter(0)
  y = f32[1024]{{0:T(1024)}} all-reduce(x), replica_groups={{{{0,1}}}}, to_apply=add, backend_config={config}
}}
"""
    )
    assert tpusim.simulate(module, "v5e", topology="v5e:2x1").timeline.total_ps > 0


@pytest.mark.parametrize("said", ["\u00b2;0", "9" * 5000 + ";0", "5;0"])
def test_memories_of_arguments_are_numbers_that_can_be(said):
    """A superscript is a digit to Python, but no number."""
    found = stated_spaces({"frontend_attributes": f'{{arg_memory_spaces="{said}"}}'}, ARGUMENT_SPACES, 2)
    assert found == ((5, 0) if said == "5;0" else ())


@pytest.mark.parametrize(
    ("limit", "row"),
    [(SIDE, "a, 100000000000, 5, 5"), (SIDE, f"a, 5, {NINES * 20}, 5"), (LAYERS, "DP, 9, 9, 3, 3, 70000, 1, 1")],
)
def test_a_cell_of_a_layer_ends_at_its_limit(capsys, tmp_path, limit, row):
    """A depthwise convolution is a product for each of its channels."""
    header = "Layer, M, N, K" if row.startswith("a") else ", ".join(("Layer", *_CONVOLUTION_COLUMNS))
    path = tmp_path / "layers.csv"
    path.write_text(f"{header}\n{row}\n")
    said = refusal_of(capsys, "systolic", "--layers", str(path))
    assert f"expected {limit.what}, at most {limit.most}, found" in said


def test_depthwise_layers_of_a_file_count_together(capsys, tmp_path):
    """One layer for each channel, of which equal ones are run once."""
    path = tmp_path / "layers.csv"
    lines = [", ".join(("Layer", *_CONVOLUTION_COLUMNS)), "DP_a, 224, 224, 3, 3, 60000, 1, 1"]
    path.write_text("\n".join(lines) + "\n")
    assert "DP_aChannel_59999" in within(10, lambda: output_of(capsys, "systolic", "--layers", str(path)))
    path.write_text("\n".join([*lines, lines[1].replace("DP_a", "DP_b")]) + "\n")
    said = refusal_of(capsys, "systolic", "--layers", str(path))
    assert f"layers.csv:3:1: expected {LAYERS.what}, at most {LAYERS.most}, found 120000" in said


def test_axes_of_a_study_multiply(capsys, tmp_path):
    """A thousand values of each of two are a million points."""
    path = tmp_path / "study.toml"
    axes = "".join(f'"mxu.{key}" = {{lin = [1, 1000, 1000]}}\n' for key in ("count", "rows"))
    path.write_text(f'programs = ["{MLP}"]\n[axes]\n{axes}')
    assert f"at most {POINTS.most}, found 1000000" in refusal_of(capsys, "sweep", str(path), "--jobs", "1")


@pytest.mark.parametrize("command", ["run", "check", "fmt"])
def test_a_layout_has_so_many_tiles(capsys, tmp_path, command):
    """Each of them cuts the array once more, and all before it are kept."""
    path = tmp_path / "tiles.v5e.hlo.txt"
    shape = f"f32[8,128]{{1,0:T(8,128){'(2,1)' * TILES.most}}}"
    path.write_text(f"HloModule m, is_scheduled=true\n\nENTRY e {{\n  ROOT p = {shape} parameter(0)\n}}\n")
    said = refusal_of(capsys, command, str(path))
    assert "tiles.v5e.hlo.txt:4:" in said
    assert f"expected {TILES.what}, at most {TILES.most}, found {TILES.most + 1}" in said


@pytest.mark.parametrize(("kind", "most", "beyond"), [("calls", 660, 670), ("loops", 660, 670)])
def test_loops_and_calls_multiply_to_so_many_executions(capsys, tmp_path, kind, most, beyond):
    """Below the limit every figure has a number, above it there is none, and a message says so."""
    path = tmp_path / "deep.v5e.hlo.txt"
    path.write_text(PROGRAMS[kind].text(most))
    run = json.loads(output_of(capsys, "run", str(path), "--json"))
    assert all(isfinite(number) for number in numbers(run))
    path.write_text(PROGRAMS[kind].text(beyond))
    for verb in ("run", "explain", "path", "advise"):
        assert f"expected {EXECUTIONS.what}, at most a number of some 201 digits" in refusal_of(capsys, verb, str(path))


def test_calls_of_calls_are_not_computed_for_ever(capsys, tmp_path):
    """Two calls on each of 23 levels; of the two branches of a conditional one runs."""
    path = tmp_path / "deep.v5e.hlo.txt"
    path.write_text(PROGRAMS["calls"].text(24))
    said = refusal_of(capsys, "exec", str(path), "--random", "1")
    assert f"expected {COMPUTED_INSTRUCTIONS.what}, at most {COMPUTED_INSTRUCTIONS.most}, found" in said
    path.write_text(PROGRAMS["branches"].text(60))
    assert "out0" in output_of(capsys, "exec", str(path), "--random", "1")


@pytest.mark.parametrize("found", [1.5, -1, None, float("nan"), True])
def test_counts_of_the_api_are_those_of_the_command_line(found):
    """A count that is none would be one all the same, or end in an error of Python's."""
    counts = {
        name: found for name in ("seed", "replicas", "max_iterations") if (name, found) != ("max_iterations", None)
    }
    for name in counts:
        with pytest.raises(ConfigError, match=f"{name}: expected"):
            tpusim.execute(MLP, **{name: found})
    with pytest.raises(ConfigError, match="default_trip_count: expected"):
        tpusim.simulate(MLP, default_trip_count=found)


def test_values_that_fit_no_machine_are_refused_as_such(capsys, tmp_path):
    """Whatever has asked for the memory."""
    path = tmp_path / "large.v5e.hlo.txt"
    path.write_text("HloModule m\n\nENTRY e {\n  ROOT c = s32[1000000000000] iota(), iota_dimension=0\n}\n")
    assert "its values do not fit the memory of this machine" in refusal_of(capsys, "exec", str(path))


def test_arrays_of_no_elements_have_sizes_that_numpy_counts(capsys, tmp_path):
    """It multiplies the others."""
    path = tmp_path / "none.v5e.hlo.txt"
    path.write_text("HloModule m\n\nENTRY e {\n  ROOT p = f32[0,9223372036854775807] parameter(0)\n}\n")
    assert "expected a number of elements to compute, at most" in refusal_of(capsys, "exec", str(path), "--random", "1")
    path.write_text(path.read_text().replace("9223372036854775807", "2147483647"))
    assert "out0" in output_of(capsys, "exec", str(path), "--random", "1")


@pytest.mark.parametrize("command", [("exec", "--random", "1"), ("run", "--schedule", "compiled"), ("compile",)])
def test_arrays_of_many_dimensions_are_read_but_not_computed(capsys, tmp_path, command):
    """NumPy has an end, and compiling takes the cube of the dimensions."""
    path = tmp_path / "deep.v5e.hlo.txt"
    shape = f"f32[{','.join(['1'] * 40)}]"
    path.write_text(f"HloModule m\n\nENTRY e {{\n  p = {shape} parameter(0)\n  ROOT n = {shape} negate(p)\n}}\n")
    said = refusal_of(capsys, command[0], str(path), *command[1:])
    assert "expected a number of dimensions, at most 32, found 40" in said
    assert f"{path}:4:3: p: " in said or command[0] == "exec"
    assert output_of(capsys, "check", str(path)) == ""


def numbers(tree):
    """Yield the numbers of a JSON document."""
    if isinstance(tree, int | float):
        yield tree
    elif isinstance(tree, dict | list):
        for inner in tree.values() if isinstance(tree, dict) else tree:
            yield from numbers(inner)


@pytest.mark.parametrize(
    "counts", ["num_partitions=9223372036854775807", "replica_count=0", "replica_count=1000000000"]
)
@pytest.mark.parametrize("command", ["run", "check", "memory"])
def test_a_module_for_too_many_devices_is_refused(capsys, tmp_path, command, counts):
    """What is kept for each device would fill the memory."""
    header, rest = gzip.decompress(Path(MLP).read_bytes()).decode().split("\n", 1)
    path = tmp_path / "many.v5e.hlo.txt"
    path.write_text(f"{header}, {counts}\n{rest}")
    assert f"expected from 1 to {DEVICES.most} devices" in refusal_of(capsys, command, str(path))


@pytest.mark.parametrize("counts", ["num_partitions=0", "replica_count=1000000000"])
def test_too_many_devices_have_no_order(capsys, tmp_path, counts):
    """It is looked up before the program is verified."""
    path = tmp_path / "many.v5e.hlo.txt"
    path.write_text(f"HloModule m, {counts}\n\nENTRY e {{\n  ROOT p = f32[] parameter(0)\n}}\n")
    assert "expected a number of devices" in refusal_of(capsys, "run", str(path), "--device-order", "hosts")


@pytest.mark.parametrize("order", ["1" * 60 + "x", "reshape(" + "2, " * 60 + "x", "[" * 5000 + "1" * 5000 + "x"])
def test_what_is_nearly_an_order_is_refused_at_once(capsys, order):
    """A pattern that tries every cut of a row of digits doubles its time with each; 28 took 20 s."""
    said = within(5, lambda: refusal_of(capsys, "run", MLP, "--device-order", order))
    assert "device order: expected" in said


@pytest.mark.parametrize(
    ("header", "groups"),
    [("", f"{{{{0,{DEVICES.most}}}}}"), ("", "[1,65537]<=[65537]"), (", num_partitions=2", "[1,65536]<=[65536]")],
)
def test_groups_of_too_many_devices_are_refused(header, groups):
    """Where the header does not say how many replicas there are, groups do; each is several devices with partitions."""
    opcode = "collective-broadcast" if groups[0] == "{" else "all-gather"
    rest = ", dimensions={0}" if opcode == "all-gather" else ""
    text = f"HloModule m{header}\n\nENTRY e {{\n  p = f32[2] parameter(0)\n"
    with pytest.raises(ProgramError, match=str(DEVICES.most)):
        verify_module(parse(f"{text}  ROOT r = f32[131072] {opcode}(p), replica_groups={groups}{rest}\n}}\n"))


def test_a_lowered_program_for_too_many_devices_is_refused(capsys, tmp_path):
    """As a module is."""
    path = tmp_path / "many.json"
    path.write_text('{"format":"tpusim-program-2","name":"x","chip":"v5e","steps":[],"device_count":1000000000}')
    assert f"expected a number of devices, at most {DEVICES.most}, found 1000000000" in refusal_of(
        capsys, "run", str(path)
    )


@pytest.mark.parametrize(
    "text",
    [
        "\n" * LONG,
        f'HloModule m, frontend_attributes={{a="{"x" * LONG}"}}\n\nENTRY e {{\n  ROOT p = f32[] parameter(0)\n}}\n',
        "HloModule m\n\nENTRY e {\n  p = f32[9] parameter(0)\n"
        f'  ROOT r = f32[9] exponential(p), metadata={{op_name="{"x" * LONG}"}}\n}}\n',
    ],
    ids=["blanks", "attribute", "metadata"],
)
def test_a_long_text_takes_no_multiple_of_its_memory(text):
    """An expression that may go back keeps its way for every character."""
    made = SURFACES["unscheduled"]._replace(inputs=(text.encode(),))
    assert run_seeds(made, [0]).faults == []


def test_devices_that_are_run_one_by_one_end_at_their_limit():
    """Messages go to single others, so that no device stands for all."""
    most = DEVICES_APART.most
    module = parse(PROGRAMS["channels"].text(2 * most))
    with pytest.raises(UnsupportedError, match=rf"run one by one, at most {most}, found {2 * most}"):
        tpusim.simulate(module, "v5p")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, ".".join("a" * 50_000) + " = 1", "a = " + "{a=" * 5_000])
@pytest.mark.parametrize("command", ["chips", "sweep"])
def test_a_configuration_ends_at_its_depth(capsys, tmp_path, command, text):
    """Python's own reader of TOML goes as deep as its stack, and takes the square of a key's length."""
    path = tmp_path / "deep.toml"
    path.write_text(f"{text}\n")
    assert str(path) in refusal_of(capsys, command, str(path))


@pytest.mark.parametrize("command", [("run",), ("diff", "{}")])
def test_json_ends_at_its_depth(capsys, tmp_path, command):
    """In a field that is skipped as well."""
    path = tmp_path / "deep.json"
    path.write_text('{"x":' + "[" * 100_000 + "]" * 100_000 + ',"format":"tpusim-program-2"}')
    name, *rest = command
    assert str(path) in refusal_of(capsys, name, str(path), *(one.format(path) for one in rest))


def test_a_chip_has_the_links_that_its_slice_uses(capsys):
    """With fewer, an all-reduce would be faster than its own roofline, which counts the links of the chip."""
    program = str(TRACES.parent / "tests" / "data" / "hlo" / "allreduce_4m.v5e_2x4.hlo.txt.gz")
    expected = "ici.links: expected at least 3 for a slice of 2x4 chips, found 2"
    assert expected in refusal_of(capsys, "run", program, "-o", "ici.links=2")
    switch = ("-o", "ici.model=switch", "-o", "ici.links=0")
    assert "ici.links: expected at least 1 for a slice of 8 chips" in refusal_of(capsys, "run", program, *switch)


def test_a_number_in_stablehlo_takes_no_more_memory_than_there_is():
    """MLIR takes room for as many dimensions as the largest number of one."""
    text = "func.func @main(%a: tensor<1x9x9x8xf32>, %b: tensor<3x3x8x16xf32>) -> tensor<1x7x7x16xf32> {\n" + (
        "%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 2147483648, i, o]->[b, 0, 1, f], "
        "window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
        "(tensor<1x9x9x8xf32>, tensor<3x3x8x16xf32>) -> tensor<1x7x7x16xf32>\nreturn %0 : tensor<1x7x7x16xf32>\n}"
    )
    with pytest.raises(ProgramError, match=r"m\.mlir: expected "):
        hlo_text(text.encode(), "m.mlir")


def test_brackets_of_stablehlo_end_at_their_depth():
    """MLIR's reader goes as deep as the process has stack, and beyond it."""
    with pytest.raises(ProgramError, match="brackets at most 200 deep"):
        hlo_text(b"module @m attributes {a = " + b"[" * 100_000, "m.mlir")
