"""Programs in other forms than HLO text become the module that XLA's own text of them is; the oracle is jaxlib."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pytest

import tpusim
from tests.cli.commands import output_of, refusal_of
from tpusim.errors import ConfigError, ProgramError, UnsupportedError
from tpusim.frontends import partition, xla
from tpusim.frontends.read import hlo_text
from tpusim.source import SourceText
from tpusim.text import parse_module, read_source

jax = pytest.importorskip("jax")
pytest.importorskip("jax.export")
hlo = xla.jaxlib("the oracle").hlo

ROOT = Path(__file__).parents[2]
SCHEDULED = ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz"
PYTORCH = ROOT / "tests/data/pytorch"
SHAPES = (jax.ShapeDtypeStruct((16, 32), "float32"), jax.ShapeDtypeStruct((32, 8), "float32"))

PLAIN_STABLEHLO = """\
module {
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %b = stablehlo.add %a, %a : tensor<4xf32>
    return %b : tensor<4xf32>
  }
}
"""

SHARED_STABLEHLO = """\
module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%a: tensor<8x16xf32> {mhlo.sharding = "{devices=[1,4]<=[4]}"},
                  %b: tensor<16x8xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}"}) -> tensor<8x8xf32> {
    %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
    return %c : tensor<8x8xf32>
  }
}
"""
SHARDY = """\
module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=4]>
  func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
                  %b: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<8x8xf32> {
    %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
    return %c : tensor<8x8xf32>
  }
}
"""

BY_HAND = """\
module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=4]>
  func.func @main(%a: tensor<16xf32>) -> tensor<16xf32> {
    %b = stablehlo.add %a, %a : tensor<16xf32>
    %c = sdy.manual_computation(%b) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>]
        manual_axes={"x"} (%d: tensor<4xf32>) {
      %e = "stablehlo.collective_permute"(%d) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}> : (tensor<4xf32>) -> tensor<4xf32>
      sdy.return %e : tensor<4xf32>
    } : (tensor<16xf32>) -> tensor<16xf32>
    return %c : tensor<16xf32>
  }
}
"""
"""A region of ``jax.shard_map`` and something before it; no argument says how devices share it."""


def layer(x, w):
    """Return something with a product, a reduction and constants."""
    return jax.nn.softmax(jax.nn.gelu(x @ w))


def lowered():
    """Return the function as JAX lowers it for a TPU, on the CPU."""
    return jax.jit(layer).trace(*SHAPES).lower(lowering_platforms=("tpu",))


def bytecode() -> bytes:
    """Return its StableHLO as MLIR writes it."""
    content = io.BytesIO()
    lowered().compiler_ir("stablehlo").operation.write_bytecode(content)
    return content.getvalue()


def portable() -> bytes:
    """Return its StableHLO as exports hand it on, in the form that later versions read."""
    return jax.export.export(jax.jit(layer), platforms=["tpu"])(*SHAPES).mlir_module_serialized


def proto() -> bytes:
    """Return it as a serialised HloModuleProto."""
    return lowered().compiler_ir("hlo").as_serialized_hlo_module_proto()


def dumped(module: bytes) -> bytes:
    """Return a HloProto: field 1, of length-delimited kind, is the module (xla/service/hlo.proto)."""
    length, size = b"", len(module)
    while size >= 0x80:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return b"\x0a" + length + bytes([size]) + module


FORMS = {
    "text": lambda: str(lowered().compiler_ir("stablehlo")).encode(),
    "text behind a comment and an alias": lambda: b"// a comment\n#loc = loc(unknown)\n" + PLAIN_STABLEHLO.encode(),
    "text without a module": lambda: "\n".join(PLAIN_STABLEHLO.splitlines()[1:-1]).encode(),
    "bytecode": bytecode,
    "portable artifact": portable,
    "HloModuleProto": proto,
    "HloProto": lambda: dumped(proto()),
    "gzip": lambda: gzip.compress(dumped(proto())),
}


def structure(module):
    """Return what a module computes, by computation: opcodes, shapes and operands' opcodes, whatever their names."""
    return [
        [(i.opcode, str(i.shape), [o.opcode for o in computation.operands_of(i)]) for i in computation]
        for computation in module.computations
    ]


def test_padding_that_takes_more_than_there_is_leaves_no_elements(tmp_path):
    """So StableHLO has it, and JAX; XLA's own inference of shapes ends over it, and HLO text with it is refused."""

    def windows(x):
        return jax.lax.reduce_window(x, np.float32(0), jax.lax.add, (2,), (1,), ((-1, -1),))

    path = tmp_path / "program.mlir"
    path.write_text(jax.jit(windows).lower(jax.ShapeDtypeStruct((1,), "float32")).as_text())
    module = tpusim.load(path)
    assert tpusim.check(module) == []
    assert tpusim.execute(module, [np.ones(1, np.float32)]).shape == (0,)


@pytest.mark.parametrize("form", [form for form in FORMS if "text " not in form])
def test_every_form_of_a_program_is_the_program_of_xlas_text(tmp_path, form):
    """As ``lowered.as_text(dialect="hlo")`` prints it; the name of the file does not matter."""
    path = tmp_path / "program"
    path.write_bytes(FORMS[form]())
    expected = parse_module(SourceText("xla", lowered().as_text(dialect="hlo")))
    assert structure(tpusim.load(path)) == structure(expected)


@pytest.mark.parametrize("form", [form for form in FORMS if "text " in form])
def test_mlir_text_is_known_however_it_begins(form):
    """With comments, aliases of locations, or the function alone, for which MLIR adds the module."""
    assert "f32[4]{0} add(" in (hlo_text(FORMS[form](), "m") or "")


@pytest.mark.parametrize("begin", ["builtin.module {", 'sdy.mesh @mesh = <["x"=4]>\nmodule {', "{-# #-}\nmodule {"])
def test_mlir_text_may_begin_with_what_is_around_a_module(begin):
    """As MLIR's own tools print it."""
    body = "  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n    return %a : tensor<4xf32>\n  }"
    end = "" if "sdy" in begin else "\n}"
    text = f"{begin.removesuffix('module {') if 'sdy' in begin else begin}\n{body}{end}\n"
    assert "HloModule" in (hlo_text(text.encode(), "m") or "")


def test_standard_input_is_read_in_every_form(monkeypatch):
    """It has no name that could end in anything."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(portable())))
    assert tpusim.load("-").name == "jit_layer"


def test_hlo_text_is_nothing_to_convert(monkeypatch):
    """Also behind empty lines, the first of which is the byte that a serialised message begins with."""
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    assert hlo_text(b"\n\nHloModule m\n\nENTRY e {\n a = f32[] constant(0)\n}", "m") is None
    assert hlo_text(b"", "m") is None


@pytest.mark.parametrize("wrap", [bytes, dumped])
def test_a_scheduled_proto_is_the_scheduled_text(tmp_path, wrap):
    """Tiles, memory spaces, fusions, backend configurations and the order are all in it."""
    text = read_source(SCHEDULED).text
    path = tmp_path / "mlp.v5e.pb"
    path.write_bytes(wrap(hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()))
    expected = parse_module(SourceText("xla", hlo.hlo_module_from_text(text).to_string()))
    module = tpusim.load(path)
    assert (module.computations, module.tables) == (expected.computations, expected.tables)
    assert str(tpusim.simulate(path)) == str(tpusim.simulate(SCHEDULED))


@pytest.mark.slow
def test_values_are_those_of_the_function():
    """In IEEE arithmetic, by the portable artifact."""
    values = [np.random.default_rng(7).normal(size=shape.shape).astype("f4") for shape in SHAPES]
    module = parse_module(SourceText("m", hlo_text(portable(), "m")))
    np.testing.assert_allclose(tpusim.execute(module, values, precision="exact"), layer(*values), rtol=1e-5)


@pytest.mark.slow
def test_a_model_of_pytorch_gives_the_values_of_pytorch():
    """torch.export and torch_xla's ``exported_program_to_stablehlo`` (2.9.0): convolution, attention, softmax."""
    data = np.load(PYTORCH / "attention.npz")
    inputs = {name: data[name] for name in data.files if name != "out"}
    found = tpusim.execute(PYTORCH / "attention.mlirbc", inputs, precision="exact")
    np.testing.assert_allclose(found, data["out"], rtol=1e-6)


def test_places_in_the_source_come_along(tmp_path):
    """For ``run --by source``."""
    path = tmp_path / "m.pb"
    path.write_bytes(proto())
    assert any("test_read.py" in line for line in tpusim.load(path).tables["FileNames"])


def test_large_constants_are_left_out_of_large_modules_only(monkeypatch):
    """Their text would be several times as large, and only values need it."""
    text = PLAIN_STABLEHLO.replace("stablehlo.add %a, %a", "stablehlo.constant dense<[1.0, 2.5, 3.0, 4.0]>")
    text = text.replace("tensor<4x", "tensor<16x").replace("4.0]", "4.0" + ", 5.0" * 12 + "]").encode()
    assert "{1, 2.5, 3, 4, 5," in hlo_text(text, "m")
    monkeypatch.setattr(xla, "MOST_CONSTANT_BYTES", 100)
    assert "constant({...})" in hlo_text(text, "m")


@pytest.mark.parametrize("command", ["run", "memory", "check", "lower", "fmt", "explain", "exec"])
def test_every_command_takes_stablehlo(capsys, tmp_path, command):
    """The chip is in the file's name, as with HLO text."""
    path = tmp_path / "double.v5e.stablehlo.mlir"
    path.write_text(PLAIN_STABLEHLO)
    options = {"explain": ["--op", "add.1"], "exec": ["--random", "1"], "lower": ["-o", str(tmp_path / "p.json")]}
    output_of(capsys, command, str(path), *options.get(command, []))


def test_the_facts_beside_a_program_are_found(tmp_path):
    """Under its name without the ending."""
    for ending in ("stablehlo.mlir", "mlir", "mlir.gz"):
        path = tmp_path / f"step.{ending}"
        content = PLAIN_STABLEHLO.encode()
        path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    (tmp_path / "step.json").write_text('{"chip": "v6e"}')
    assert {tpusim.simulate(path).chip.name for path in tmp_path.glob("step.*mlir*")} == {"v6e"}


@pytest.mark.parametrize("form", ["text", "bytecode", "portable artifact", "HloModuleProto", "HloProto"])
def test_without_jaxlib_the_error_says_what_to_install(capsys, monkeypatch, tmp_path, form):
    """In one line, with the other way: HLO text."""
    path = tmp_path / "program.bin"
    path.write_bytes(FORMS[form]())
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    message = refusal_of(capsys, "run", str(path))
    assert message.startswith(f"tpusim: {path}: ")
    assert "pip install 'tpusim[jax]'" in message
    assert "as_text()" in message
    assert message.count("\n") == 1


def test_a_slip_in_mlir_text_is_shown_in_its_line():
    """Where MLIR says that it is."""
    text = PLAIN_STABLEHLO.replace("stablehlo.add %a, %a :", "stablehlo.add %a, %c :")
    with pytest.raises(ProgramError) as caught:
        hlo_text(text.encode(), "m.mlir")
    place = text.splitlines()[2].index("%c")
    assert str(caught.value).startswith(f"m.mlir:3:{place + 1}: ")
    assert str(caught.value).endswith("\n  " + " " * place + "^")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PLAIN_STABLEHLO.replace("@main", "@forward").encode(), "m:1:1: .*expected StableHLO with a function 'main'"),
        (b"ML\xefRgarbage", "m: expected StableHLO.*found"),
        (b"\x0a\x03jit\x12\x00\x00", "m: expected HLO text, or a serialised HloModuleProto or HloProto"),
        (b"\x0a" + b"\xff" * 20 + b"\x12", "m: expected HLO text, or a serialised"),
    ],
)
def test_damaged_programs_are_refused(content, message):
    """With what was expected and what jaxlib says."""
    with pytest.raises(ProgramError, match=message):
        hlo_text(content, "m")


def test_cut_off_programs_are_refused():
    """Wherever the cut is, but for what a HloModuleProto by itself has behind its computations."""
    for content, most in ((portable(), 1), (proto(), 0.8), (dumped(proto()), 1)):
        for end in (*range(100, int(len(content) * most), len(content) // 7), int(len(content) * most) - 3):
            with pytest.raises(ProgramError):
                hlo_text(content[:end], "m")


def test_damaged_words_are_refused():
    """XLA prints what should be JSON as it stands, whatever bytes it has."""
    text = 'HloModule m\n\nENTRY e {\n a = f32[] parameter(0)\n ROOT b = f32[] add(a, a), backend_config={"a":"bcd"}\n}'
    content = hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    with pytest.raises(ProgramError, match=r"m: expected text in UTF-8, .* found the byte 0xb7"):
        hlo_text(content.replace(b':"bcd"', b'\xb7"bcd"'), "m")


def test_messages_about_the_converted_text_say_so(tmp_path):
    """Its lines are not those of the file."""
    path = tmp_path / "m.v5e.mlir"
    path.write_text(PLAIN_STABLEHLO.replace("4xf32", "?xf32"))
    with pytest.raises(ProgramError, match=r"m\.v5e\.mlir as HLO text:\d+:\d+: .*expected every dimension"):
        tpusim.simulate(path)


def test_the_readers_are_found_where_jaxlib_had_them_before(monkeypatch):
    """Until 0.10.1."""
    monkeypatch.setitem(sys.modules, "jaxlib._hlo", None)
    assert xla.jaxlib("m").hlo.__name__ == "jaxlib._jax"


def test_an_old_jaxlib_is_as_good_as_none(monkeypatch):
    """Before 0.7 it was built otherwise."""
    monkeypatch.setitem(sys.modules, "jaxlib._jax", None)
    with pytest.raises(ConfigError, match=r"m is read by jaxlib, from 0\.7 on"):
        xla.jaxlib("m")


@pytest.mark.parametrize("text", [SHARED_STABLEHLO, SHARDY])
def test_what_devices_share_becomes_what_each_of_them_runs(text, tmp_path):
    """XLA cuts the sum of a product up: each of four devices has a part of it, and all get the whole."""
    path = tmp_path / "product.mlir"
    path.write_text(text)
    module = tpusim.load(path)
    assert module.partition_count == 4
    assert [str(one.shape).partition("{")[0] for one in module.entry.parameters] == ["f32[8,4]", "f32[4,8]"]
    left, right = (np.arange(128, dtype="float32").reshape(shape) % 5 for shape in ((8, 16), (16, 8)))
    parts = [[left[:, 4 * n : 4 * n + 4], right[4 * n : 4 * n + 4]] for n in range(4)]
    for result in tpusim.execute(module, parts):
        np.testing.assert_array_equal(result, left @ right)
    np.testing.assert_array_equal(tpusim.execute(path, [left, right]), left @ right)


def test_what_devices_do_by_hand_is_cut_up_though_no_argument_is(monkeypatch, tmp_path):
    """By every verb alike: only devices 0 and 1 send something, twice what they have, to each other."""
    # XLA's variable, in which no number stands.
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "none")
    path = tmp_path / "swap.mlir"
    path.write_text(BY_HAND)
    assert tpusim.load(path).partition_count == 4
    x = np.arange(16, dtype="float32").reshape(4, 4)
    for options in ({}, {"chip": "v5e", "schedule": "compiled"}):
        found = tpusim.execute(path, [[part] for part in x], **options)
        np.testing.assert_array_equal(found, 2 * x[[1, 0, 2, 3]] * [[1], [1], [0], [0]])
    assert tpusim.simulate(path, "v5e", schedule="compiled").communication.collectives


@pytest.mark.parametrize("schedule", ["given", "compiled"])
def test_inputs_are_made_for_what_devices_do_by_hand(capsys, tmp_path, schedule):
    """Of a device's part, under every schedule."""
    path = tmp_path / "swap.v5e.mlir"
    path.write_text(BY_HAND)
    assert "out3  float32[4]" in output_of(capsys, "exec", str(path), "--random", "1", "--schedule", schedule)


def test_a_program_that_xla_does_not_cut_up_is_told_of(capfd, monkeypatch):
    """With its name and the reason, which XLA does not log as well; here Shardy's calls reach the other partitioner."""
    monkeypatch.setattr(partition, "_OF_SHARDY", "nowhere")
    with pytest.raises(UnsupportedError, match=r"^m\.mlir: XLA does not cut it up for its 4 devices: .*xla\.sdy"):
        hlo_text(BY_HAND.encode(), "m.mlir")
    assert "xla.sdy" not in capfd.readouterr().err


def test_shardings_of_the_older_form_stay_with_their_partitioner():
    """Though something else is called as Shardy's are; Shardy would leave such a program whole."""
    text = SHARED_STABLEHLO.replace("%b: tensor<16x8xf32> {", '%b: tensor<16x8xf32> {jax.arg_info = "sdy.sharding", ')
    assert "f32[8,4]{1,0} parameter(0)" in hlo_text(text.encode(), "m")
