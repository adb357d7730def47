"""``tpusim exec`` and ``tpusim check``: files in and out, repeatability, and what they refuse."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tpusim.cli.main import main

TRACES = Path(__file__).parents[2] / "traces"

HALF = """HloModule half

ENTRY e {
  x = bf16[2,3] parameter(0)
  k = bf16[] constant(0.5)
  b = bf16[2,3] broadcast(k), dimensions={}
  n = s32[4] parameter(1)
  h = bf16[2,3] multiply(x, b)
  m = s32[4] negate(n)
  ROOT r = (bf16[2,3], s32[4]) tuple(h, m)
}
"""

PRODUCT = """HloModule product

ENTRY e {
  x = f32[8,200] parameter(0)
  y = f32[200,8] parameter(1)
  ROOT r = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

# Counts up to the bound that it is given.
LOOP = """HloModule loop

while_below { s = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1 ROOT c = pred[] compare(i, n), direction=LT }

count { s = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1 k = s32[] constant(1) j = s32[] add(i, k)
  ROOT t = (s32[], s32[]) tuple(j, n) }

ENTRY e {
  n = s32[] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], s32[]) tuple(zero, n)
  runaway = (s32[], s32[]) while(init), condition=while_below, body=count
  ROOT r = s32[] get-tuple-element(runaway), index=0
}
"""

ALL_REDUCE = """HloModule sum

add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }

ENTRY e {
  p = f32[3] parameter(0)
  ROOT r = f32[3] all-reduce(p), replica_groups={}, to_apply=add
}
"""

INFEED = """HloModule feed

ENTRY e {
  t = token[] after-all()
  a = (f32[3], token[]) infeed(t)
  x = f32[3] get-tuple-element(a), index=0
  next = token[] get-tuple-element(a), index=1
  b = (f32[3], token[]) infeed(next)
  y = f32[3] get-tuple-element(b), index=0
  ROOT r = f32[3] subtract(x, y)
}
"""

# A stated shape that cannot be, in line 5; a module of one instruction beside it is in order.
BAD = "HloModule m\n\nENTRY e {\n  p = f32[4] parameter(0)\n  ROOT r = f32[5] negate(p)\n}\n"
GOOD = BAD.replace("f32[5]", "f32[4]")


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a text, or arrays by name, to a file and returns its path."""

    def put(name: str, text: str = "", **arrays) -> str:
        path = tmp_path / name
        if arrays:
            np.savez(path, **arrays)
        else:
            path.write_text(text)
        return str(path)

    return put


def computed(tmp_path, *arguments: str) -> dict:
    """Run ``tpusim exec`` and return the arrays that it wrote."""
    path = str(tmp_path / "out.npz")
    assert main(["exec", *arguments, "--outputs", path]) == 0
    with np.load(path) as file:
        return dict(file)


def refusal(capsys, *arguments: str) -> str:
    """Run a command that must be refused and return its one message."""
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("tpusim: ")
    assert captured.err.count("tpusim: ") == 1
    return captured.err


def test_arrays_go_in_and_come_out(write, tmp_path):
    """A bf16 array is a float32 one under a name that says so, on both sides; integers are as they are."""
    x = np.array([[1, 2, -3], [0.5, 0, 1.5]], np.float32)
    inputs = write("in.npz", in0_bf16=x, in1=np.arange(4, dtype=np.int32))
    found = computed(tmp_path, write("half.hlo", HALF), "--inputs", inputs)
    assert found.keys() == {"out0_bf16", "out1"}
    assert (found["out0_bf16"].dtype, found["out1"].dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(found["out0_bf16"], x / 2)
    np.testing.assert_array_equal(found["out1"], [0, -1, -2, -3])


def test_inputs_are_rounded_to_the_type_of_the_parameter(write, tmp_path):
    """A float32 file may hold what bf16 does not: it is rounded to nearest, as XLA converts."""
    x = np.linspace(0.1, 1.7, 6, dtype=np.float32).reshape(2, 3)
    inputs = write("in.npz", in0_bf16=x, in1=np.zeros(4, np.int32))
    found = computed(tmp_path, write("half.hlo", HALF), "--inputs", inputs)
    np.testing.assert_array_equal(found["out0_bf16"], x.astype(ml_dtypes.bfloat16).astype(np.float32) / 2)


def test_outputs_are_inputs_of_the_next_run(write, tmp_path):
    """What one program wrote another reads, once the names say in."""
    program = write("half.hlo", HALF)
    first = computed(tmp_path, program, "--random", "3")
    again = write("again.npz", **{name.replace("out", "in"): array for name, array in first.items()})
    second = computed(tmp_path, program, "--inputs", again)
    np.testing.assert_array_equal(second["out0_bf16"], first["out0_bf16"] / 2)
    np.testing.assert_array_equal(second["out1"], -first["out1"])


@pytest.mark.parametrize("by", ["inputs", "infeed"])
@pytest.mark.parametrize(
    ("name", "number", "dtype"), [("s32", 2**24 + 1, ">i4"), ("c64", 1 + 2j, ">c8"), ("f64", 0.1, ">f8")]
)
def test_arrays_of_the_other_byte_order_keep_their_types_and_digits(write, tmp_path, name, number, dtype, by):
    """They came out as float32: numbers lost their last digits, and complex ones their imaginary parts."""
    array = np.array([number, 5], dtype)
    lines = {
        "inputs": f"  ROOT x = {name}[2] parameter(0)\n",
        "infeed": f"  t = token[] after-all()\n  i = ({name}[2], token[]) infeed(t)\n"
        f"  ROOT x = {name}[2] get-tuple-element(i), index=0\n",
    }
    program = write("m.hlo", f"HloModule m\n\nENTRY e {{\n{lines[by]}}}\n")
    (out,) = computed(tmp_path, program, f"--{by}", write("in.npz", in0=array)).values()
    assert out.dtype == array.dtype.type
    assert (out == array).all()


def test_results_are_described_without_a_file(capsys, write):
    """A line per output: name, type, sizes, first elements."""
    inputs = write("in.npz", in0_bf16=np.ones((2, 3), np.float32), in1=np.arange(4, dtype=np.int32))
    assert main(["exec", write("half.hlo", HALF), "--inputs", inputs]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["out0_bf16", "out1"]
    assert "[2,3]" in lines[0]
    assert "0, -1, -2, -3" in " ".join(lines[1].split())


def test_random_inputs_are_those_of_the_seed(capsys, write):
    """The same seed, the same values; another seed, others."""
    program = write("product.hlo", PRODUCT)
    texts = []
    for seed in ("1", "1", "2"):
        assert main(["exec", program, "--random", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_random_inputs_of_sizes_that_nothing_bounds_are_refused_in_their_place(capsys, write):
    """As without them: a negative number of elements was asked for."""
    program = write("p.hlo", "HloModule m\n\nENTRY e {\n  ROOT x = f32[?,128] parameter(0)\n}\n")
    told = [refusal(capsys, "exec", program, *more) for more in ([], ["--random", "1"])]
    assert told[0] == told[1]
    assert ":4:" in told[0]


def test_random_inputs_stand_in_for_those_that_are_missing(write, tmp_path):
    """What a file gives is taken from it."""
    inputs = write("in.npz", in1=np.arange(4, dtype=np.int32))
    found = computed(tmp_path, write("half.hlo", HALF), "--inputs", inputs, "--random", "3")
    np.testing.assert_array_equal(found["out1"], [0, -1, -2, -3])


def test_an_unknown_custom_call_is_shown_in_its_place(capsys, write):
    """With line, column and caret, also in a computation that another one calls."""
    text = """HloModule m
f { p = f32[2] parameter(0) ROOT c = f32[2] custom-call(p), custom_call_target="mine" }
ENTRY e { p = f32[2] parameter(0) ROOT r = f32[2] call(p), to_apply=f }
"""
    message = refusal(capsys, "exec", write("m.hlo", text), "--random", "1")
    assert "m.hlo:2:34: c: nothing says what the custom call 'mine' computes" in message
    assert message.endswith(f"\n{' ' * 35}^\n")


@pytest.mark.parametrize("arrays", [{}, {"in0": np.zeros((8, 200))}, {"x": np.zeros(3)}])
def test_missing_inputs_list_the_parameters(capsys, write, arrays):
    """The names that the file should have, with the parameters' shapes, whether there is a file or not."""
    options = ["--inputs", write("in.npz", **arrays)] if arrays else []
    error = refusal(capsys, "exec", write("product.hlo", PRODUCT), *options)
    missing = error.partition(";")[0]
    assert "in0: f32[8,200], in1: f32[200,8]" in error
    assert "in1" in missing
    assert ("in0" in missing) == ("in0" not in arrays)


def test_inputs_of_other_sizes_are_refused(capsys, write):
    """The message names the input, what is expected and what was found."""
    inputs = write("in.npz", in0=np.zeros((8, 200)), in1=np.zeros((8, 200)))
    error = refusal(capsys, "exec", write("product.hlo", PRODUCT), "--inputs", inputs)
    assert all(words in error for words in ("in1", "f32[200,8]", "(8, 200)"))


def test_precision_says_how_products_are_made(write, tmp_path):
    """By default operands are rounded to bf16 as on a TPU; ``exact`` has the last bits."""
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((8, 200)), generator.standard_normal((200, 8))
    inputs = write("in.npz", in0=x.astype(np.float32), in1=y.astype(np.float32))
    arguments = (write("product.hlo", PRODUCT), "--inputs", inputs)
    default = computed(tmp_path, *arguments)["out0"]
    np.testing.assert_array_equal(computed(tmp_path, *arguments, "--precision", "tpu")["out0"], default)
    x16, y16 = (a.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64) for a in (x, y))
    np.testing.assert_allclose(default, x16 @ y16, rtol=0, atol=1e-4)
    exact = computed(tmp_path, *arguments, "--precision", "exact")["out0"]
    np.testing.assert_allclose(exact, x @ y, rtol=0, atol=1e-4)
    assert np.max(np.abs(default - exact)) > 1e-3


def test_a_runaway_loop_is_stopped_by_name(capsys, write):
    """The message says which loop, after how many iterations, and which option stopped it."""
    inputs = write("in.npz", in0=np.int32(2**31 - 1))
    arguments = ("exec", write("loop.hlo", LOOP), "--inputs", inputs, "--max-iterations", "7")
    error = refusal(capsys, *arguments)
    assert all(words in error for words in ("'runaway'", "7 iterations", "--max-iterations"))


def test_a_loop_may_take_all_its_iterations(capsys, write, tmp_path):
    """The limit is the last number that is allowed: 7 iterations pass at 7 and fail at 6."""
    arguments = [write("loop.hlo", LOOP), "--inputs", write("in.npz", in0=np.int32(7)), "--max-iterations"]
    assert computed(tmp_path, *arguments, "7")["out0"] == 7
    assert "'runaway'" in refusal(capsys, "exec", *arguments, "6")


def test_replicas_meet_in_an_all_reduce(write, tmp_path):
    """Four devices with the same input each get four times it."""
    inputs = write("in.npz", in0=np.array([1, -2, 0.25], np.float32))
    found = computed(tmp_path, write("sum.hlo", ALL_REDUCE), "--inputs", inputs, "--replicas", "4")
    assert found.keys() == {"out0", "out1", "out2", "out3"}
    assert all(np.array_equal(array, [4, -8, 1]) for array in found.values())


def test_infeeds_read_the_file_in_order(write, tmp_path):
    """The first infeed gets the first array."""
    feed = write("feed.npz", in0=np.array([5, 6, 7], np.float32), in1=np.array([1, 2, 3.5], np.float32))
    found = computed(tmp_path, write("feed.hlo", INFEED), "--infeed", feed)
    np.testing.assert_array_equal(found["out0"], [4, 4, 3.5])


@pytest.mark.parametrize("arrays", [{}, {"in0": np.zeros(3, np.float32)}])
def test_an_infeed_that_runs_dry_is_named(capsys, write, arrays):
    """Without a file it is the first, with one array the second."""
    options = ["--infeed", write("feed.npz", **arrays)] if arrays else []
    assert f"'{'b' if arrays else 'a'}'" in refusal(capsys, "exec", write("feed.hlo", INFEED), *options)


def test_an_infeed_of_a_tuple_reads_as_many_arrays_as_it_has(write, tmp_path):
    """So the trace that trains from its infeed is computed, here for two batches in place of a hundred."""
    text = gzip.decompress((TRACES / "host" / "train_from_infeed.v5e.hlo.txt.gz").read_bytes()).decode()
    batches = {f"in{i}": np.full((256, 1024), i, np.float32) for i in range(2)}
    program, sent = write("fed.hlo", text.replace("constant(100)", "constant(2)")), tmp_path / "sent.npz"
    computed(tmp_path, program, "--random", "1", "--infeed", write("in.npz", **batches), "--outfeed", str(sent))
    with np.load(sent) as found:
        assert [found[f"out{i}"].any() for i in range(2)] == [False, True]


def test_a_file_that_is_no_npz_is_refused(capsys, write):
    """The message names the file."""
    path = write("in.npz", "no arrays\n")
    assert path in refusal(capsys, "exec", write("half.hlo", HALF), "--inputs", path)


@pytest.mark.parametrize(
    ("dtype", "saved", "said"),
    [
        ("bf16", np.zeros(2, ml_dtypes.bfloat16), "found an array of |V2, bytes of no known type: {}"),
        ("s4", np.zeros(2, ml_dtypes.int4), "found an array of |V1, bytes of no known type: {}"),
        ("f32", np.zeros(2, ml_dtypes.bfloat16), "no known type: save it with .astype('float32')"),
        ("f8e5m2", np.zeros(2, ml_dtypes.float8_e5m2), "types that NumPy lacks as float32, under names such as in0_"),
        ("s4", np.zeros(2, np.int8), "found int8: {}"),
        ("bf16", np.zeros(2, np.uint16), "found uint16: {}"),
        ("s8", np.zeros(2, np.int16), "found int16: convert it, for instance with .astype('int8')"),
        ("f32", np.array(["a", "b"]), "expected numbers for f32[2], found an array of <U1"),
    ],
)
def test_a_file_is_told_what_it_can_hold(capsys, write, dtype, saved, said):
    """The advice is one that NumPy's files can follow."""
    path, text = write("in.npz", in0=saved), f"HloModule m\n\nENTRY e {{\n  ROOT p = {dtype}[2] parameter(0)\n}}\n"
    wanted = said.format(f"save its numbers as float32, under in0_{dtype}")
    assert wanted in refusal(capsys, "exec", write("m.hlo", text), "--inputs", path)


def test_a_file_of_one_array_twice_is_refused(capsys, write, tmp_path):
    """The second one would be taken, and nothing said."""
    path = tmp_path / "in.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in (("in0.npy", np.zeros(3, np.float32)), ("in0", np.ones(3, np.float32))):
            with archive.open(name, "w") as file:
                np.lib.format.write_array(file, values)
    said = refusal(capsys, "exec", write("half.hlo", HALF), "--inputs", str(path))
    assert "expected each array once, found 'in0' twice" in said


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (
            b"\x01\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,)*3}\n",
            "no sizes and no type at the head of in0",
        ),
        (b"\x03\x00{}\n", "in0.npy in the format 3.0"),
    ],
)
def test_a_header_that_is_none_is_told_in_plain_words(capsys, write, tmp_path, head, said):
    """NumPy's reader would tell where it lay in memory, which is another place on each run."""
    path = tmp_path / "in.npz"
    size = (len(head) - 2).to_bytes(2 if head[0] == 1 else 4, "little")
    with zipfile.ZipFile(path, "w") as archive, archive.open("in0.npy", "w") as file:
        file.write(b"\x93NUMPY" + head[:2] + size + head[2:])
    assert said in refusal(capsys, "exec", write("half.hlo", HALF), "--inputs", str(path))


def test_a_header_is_read_as_far_as_one_can_be(capsys, write, tmp_path):
    """It states its own length, and a gigabyte of blanks is a megabyte in the file."""
    path = tmp_path / "in.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("in0.npy", "w") as file:
        file.write(b"\x93NUMPY\x02\x00" + (1 << 28).to_bytes(4, "little") + b" " * (1 << 28))
    tracemalloc.start()
    said = refusal(capsys, "exec", write("half.hlo", HALF), "--inputs", str(path))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "expected an .npz file of arrays" in said
    assert peak_bytes < 64 << 20


def test_a_damaged_member_is_refused(capsys, write, tmp_path):
    """However it is packed."""
    path = tmp_path / "in.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive, archive.open("in0.npy", "w") as file:
        np.lib.format.write_array(file, np.arange(1000, dtype=np.float32))
    content = bytearray(path.read_bytes())
    content[60:80] = b"\xff" * 20
    path.write_bytes(content)
    assert str(path) in refusal(capsys, "exec", write("half.hlo", HALF), "--inputs", str(path))


@pytest.mark.parametrize("text", [GOOD, HALF, PRODUCT, LOOP, ALL_REDUCE, INFEED])
def test_check_is_silent_about_what_is_right(capsys, write, text):
    """Exit code 0, and not a word."""
    assert main(["check", write("good.hlo", text)]) == 0
    assert capsys.readouterr() == ("", "")


def test_check_gives_the_label_and_the_place(capsys, write):
    """The rule that is broken, then file, line and the instruction."""
    path = write("bad.hlo", BAD)
    error = refusal(capsys, "check", path)
    assert all(words in error for words in ("[shape_c2]", f"{path}:5:", "'r'", "f32[5]", "f32[4]", "^"))


def test_check_tells_everything_that_is_wrong(capsys, write):
    """Two broken lines are two messages, not the first only."""
    text = BAD.replace("  ROOT", "  q = f32[7] abs(p)\n  ROOT")
    error = refusal(capsys, "check", path := write("bad.hlo", text))
    assert f"{path}:5:" in error
    assert f"{path}:6:" in error


def test_check_prints_json(capsys, write):
    """A list of messages, empty if nothing is wrong; the exit code is that of the plain form."""
    assert main(["check", write("good.hlo", GOOD), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["check", write("bad.hlo", BAD), "--json"]) == 1
    (message,) = json.loads(capsys.readouterr().out)
    assert "[shape_c2]" in message


# As HLO text of what jax.shard_map wraps, which no partitioner has seen.
BY_HAND = """HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=4]>}}

ENTRY e {
  x = f32[16] parameter(0)
  c = f32[4] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape",
    frontend_attributes={xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}]>]>",
      xla.sdy.manual_axes="#sdy<manual_axes{\\"x\\"}>"}
  n = f32[4] negate(c)
  ROOT o = f32[16] custom-call(n), custom_call_target="xla.sdy.LocalToGlobalShape",
    frontend_attributes={xla.sdy.manual_axes="#sdy<manual_axes{\\"x\\"}>",
      xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}]>]>"}
}
"""


def test_random_inputs_are_those_of_what_is_computed(tmp_path, capsys):
    """Of which the compiler has made parts: each of four devices has four numbers."""
    path = tmp_path / "m.v5e.hlo"
    path.write_text(BY_HAND)
    assert main(["exec", str(path), "--random", "1", "--schedule", "compiled"]) == 0
    assert "out3  float32[4]" in capsys.readouterr().out
