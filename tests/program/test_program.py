"""Lowered programs: walking them, and their text form."""

from __future__ import annotations

from contextlib import nullcontext

import msgspec
import numpy as np
import pytest
from msgspec import structs

from tpusim.cost.collectives import _PLANS
from tpusim.errors import ConfigError, ProgramError, UnsupportedError
from tpusim.pipeline.stages import simulate
from tpusim.program.buffers import Buffer, peak_bytes, stretches
from tpusim.program.module import Program, most_executions, walk
from tpusim.program.steps import (
    COLLECTIVE_KINDS,
    Branch,
    Call,
    ChannelTransfer,
    Choice,
    Collective,
    Copy,
    HostTransfer,
    Kernel,
    Loop,
    Step,
    TileLoop,
    Wait,
)
from tpusim.program.stored import as_read, encode_program, load_program, save_program
from tpusim.program.verify import verify_products, verify_program
from tpusim.program.work import Matmul, Stream, TileClass, TilePart, Work

KERNEL = Kernel(name="k", opcode="fusion", work=Work(matmuls=(Matmul(1.0, 2.0),)), streams=(Stream("a", "hbm", 8.0),))
PROGRAM = Program(
    name="p",
    chip="v5e",
    steps=(
        Copy(name="c", opcode="copy-start", n_bytes=64.0),
        Loop(
            name="l",
            opcode="while",
            trips=3,
            condition=(KERNEL,),
            body=(KERNEL, Wait(name="w", opcode="copy-done", needs=("c",))),
        ),
        Branch(name="b", opcode="conditional", taken=1, branches=((), (KERNEL,))),
        Call(name="f", opcode="call", body=(KERNEL,)),
    ),
    buffers=(Buffer(name="x", n_bytes=4, space="hbm", kind="temporary", first=0, last=1),),
    warnings=("look out",),
)


def test_saved_program_reads_back_equal(tmp_path):
    """All kinds of step survive the text form."""
    save_program(PROGRAM, tmp_path / "p.program.json")
    assert load_program(tmp_path / "p.program.json") == PROGRAM


def test_text_form_leaves_defaults_out(tmp_path):
    """A program written by hand states only what matters."""
    path = tmp_path / "p.program.json"
    head = '{"name": "p", "chip": "v5e", "format": "tpusim-program-2", "steps": '
    path.write_text(head + '[{"type": "Kernel", "name": "k", "opcode": "add"}]}')
    assert load_program(path).steps == (Kernel(name="k", opcode="add"),)


@pytest.mark.parametrize("text", ["", "{", '{"name": 1}', '{"name": "p", "chip": "v5e", "steps": [{"type": "Nope"}]}'])
def test_bad_text_form_is_a_program_error(tmp_path, text):
    """What is not a program is refused with the path of the file."""
    path = tmp_path / "p.program.json"
    path.write_text(text)
    with pytest.raises(ProgramError, match=r"p\.program\.json: not a lowered program"):
        load_program(path)


def test_a_schedule_is_one_of_three(tmp_path):
    """A file of before that says nothing of it has that of its text; a word that is none is refused."""
    path = tmp_path / "p.json"
    save_program(PROGRAM, path)
    assert "whose_schedule" not in path.read_text()
    assert load_program(path).whose_schedule == "given"
    path.write_text(path.read_text().replace('"name": "p"', '"name": "p", "whose_schedule": "ours"', 1))
    with pytest.raises(ProgramError, match=r"Invalid enum value 'ours' - at `\$.whose_schedule`"):
        load_program(path)


def test_walk_counts_executions():
    """A condition runs once more than its body; only the branch taken is walked."""
    counts = [count for step, count in walk(PROGRAM.steps) if step is KERNEL]
    assert counts == [4, 3, 1, 1]


def test_most_executions_of_a_step():
    """Trips multiply, a condition's are one more; of branches those count that some device takes at some visit."""
    assert most_executions(Program(name="p", chip="v5e", steps=())) == 0
    assert most_executions(PROGRAM) == 4
    body = (Loop(name="i", opcode="while", trips=2, choices=(Choice((5, 0)),), body=(Wait(name="w", opcode="wait"),)),)
    often, never = (Loop(name=name, opcode="while", trips=10, body=body) for name in ("often", "never"))
    branch = Branch(name="b", opcode="conditional", taken=1, branches=((never,), (), (often,)))
    for choices, most in [((), 1), ((Choice((2,), devices=(3,)),), 50)]:
        steps = (msgspec.structs.replace(branch, choices=choices),)
        assert most_executions(Program(name="p", chip="v5e", steps=steps)) == most


def buffer(n_bytes: int, first: int, last: int) -> Buffer:
    """Return a temporary in HBM."""
    return Buffer(name="b", n_bytes=n_bytes, space="hbm", kind="temporary", first=first, last=last)


def test_peak_counts_both_ends_of_a_life():
    """A buffer whose last position is another's first overlaps it."""
    assert peak_bytes(stretches([buffer(10, 0, 1), buffer(5, 1, 2), buffer(7, 3, 4)])) == 15


def test_peak_agrees_with_counting_every_position():
    """The sweep agrees with the definition: the largest sum over all positions."""
    buffers = [buffer(7 * i % 11 + 1, i % 5, i % 5 + i % 3) for i in range(40)]
    definition = max(sum(b.n_bytes for b in buffers if b.first <= at <= b.last) for at in range(10))
    assert peak_bytes(stretches(buffers)) == definition


def test_peak_of_nothing_is_zero():
    """No buffers, no bytes."""
    assert peak_bytes([]) == 0


HALF = Work(ops={"vector": 5.0})
HEAD = '"name": "p", "chip": "v5e", "format": "tpusim-program-2"'
BROKEN = {
    '{"name": "p", "chip": "v5e", "steps": [], "format": "other"}': "expected the format 'tpusim.*, found 'other'",
    '{"name": "p", "chip": "v5e", "steps": []}': "missing required field `format`",
    f'{{{HEAD}, "steps": [], "extra": 1}}': "unknown field `extra`",
    f'{{{HEAD}, "steps": [], "steps": []}}': "each key of an object once, found 'steps' twice",
    f'{{{HEAD}, "steps": [{{"type": "Kernel", "name": "k", "opcode": "add", "tiles": 0}}]}}': "at least one tile",
    f'{{{HEAD}, "steps": [{{"type": "Kernel", "name": "k", "opcode": "f", "floor": {{"flop": 1}}}}]}}': "field `flop`",
    f'{{{HEAD}, "steps": [], "buffers": [{{"offset": 1}}]}}': "unknown field `offset`",
    f'{{{HEAD}, "steps": [], "topology": "nosuch"}}': "topology: ",
    f'{{{HEAD}, "steps": {"[" * 5000}': "values that are too deep in each other",
    f'{{{HEAD}, "steps": [], "device_count": 4, "device_order": [1, 0]}}': "each of 4 devices once",
    f'{{{HEAD}, "steps": [], "argument_bytes": 8, "output_bytes": 8, "alias_bytes": 9}}': "no more than arguments",
}


@pytest.mark.parametrize(("text", "words"), BROKEN.items())
def test_programs_that_cannot_run_are_refused(tmp_path, text, words):
    """A slip in a program written by hand is found when it is read."""
    path = tmp_path / "p.program.json"
    path.write_text(text)
    with pytest.raises(ProgramError, match=f"not a lowered program.*{words}"):
        load_program(path)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Kernel(name="k", opcode="f", streams=(Stream("a", "hbm", 8.0, 0),)), "at least one fetch, found 0"),
        (Kernel(name="k", opcode="f", streams=(Stream("a", "hbm", -8.0),)), r"streams\[0\].block_bytes"),
        (Kernel(name="k", opcode="f", streams=(Stream("a", "hbm", 1e300),)), r"streams\[0\].block_bytes"),
        (Kernel(name="k", opcode="f", streams=(Stream("a", "hbm", 1e-320),)), "a number from 1e-30 to 1e.24, found 1e"),
        (Kernel(name="k", opcode="f", work=Work(ops={"vector": -1.0})), r"work.ops.vector: expected a number from 0"),
        (Kernel(name="k", opcode="f", tiles=6, loops=(TileLoop("batch", 4),)), "multiply to 6 tiles"),
        (Kernel(name="k", opcode="f", classes=(TileClass(1, runs=(1.0,)),)), "runs of all 0 parts"),
        (Copy(name="k", opcode="copy-start", n_bytes=-1.0), "n_bytes: expected a number from 0"),
        (Loop(name="k", opcode="while", trips=-1), "trips: expected a number from 0"),
        (Branch(name="k", opcode="conditional", taken=3), "one of 0 branches, found 3"),
        (Kernel(name="k", opcode="f", flops_type="bf17"), r"flops_type: .* found 'bf17' \(did you mean 'bf16'"),
        (
            Kernel(name="k", opcode="f", type_shares={"bf17": 1.0}),
            r"type_shares: .* found 'bf17' \(did you mean 'bf16'",
        ),
        (
            Kernel(name="k", opcode="f", work=Work(matmuls=(Matmul(1, 1),)), type_shares={"bf16": 0.5, "s8": 0.5}),
            "type_shares: expected types of its matmuls, bf16, found 's8'",
        ),
        (
            Kernel(name="k", opcode="f", type_shares={"s8": 0.5, "f32": 0.5}),
            "type_shares: expected one of its flops_type, 'bf16', found none",
        ),
        (Kernel(name="k", opcode="f", type_shares={"bf16": 0.5, "s8": 0.4}), "shares that add up to 1, found 0.9"),
        (Kernel(name="k", opcode="f", type_shares={"bf16": -0.5, "s8": 1.5}), r"type_shares.bf16: expected a number"),
        (Kernel(name="k", opcode="f", work=Work(matmuls=(Matmul(1, 1, operand_type="fp8"),))), "operand_type: .*'fp8'"),
        (Collective(name="k", opcode="c", kind="all-reduced"), r"kind: .* found 'all-reduced' \(did you mean 'all-re"),
        (Collective(name="k", opcode="c", kind="all-reduce", group_size=0), "at least one device, found 1 of 0"),
        (Collective(name="k", opcode="c", kind="all-gather", groups=((0, 1), ())), "in each at least one device"),
        (Collective(name="k", opcode="c", kind="collective-permute", pairs=((0, -1),)), "counted from 0"),
        (
            Kernel(name="k", opcode="f", work=HALF, stages=(HALF, HALF)),
            "stages: expected what makes up the work",
        ),
        (
            Kernel(name="k", opcode="f", work=HALF, parts=(TilePart((HALF,)),), classes=(TileClass(1, runs=(2.0,)),)),
            "parts: expected what makes up the work",
        ),
        (Kernel(name="k", opcode="f", work=HALF, parts=(TilePart((HALF,)),)), "as often as the classes run it"),
        (
            Kernel(name="k", opcode="f", parts=(TilePart((HALF,)),), classes=(TileClass(1, runs=(1e200,)),)),
            r"classes\[0\].runs\[0\]: expected a number from 0 to 1e\+24, found 1e\+200",
        ),
        (Copy(name="k", opcode="copy-start", n_bytes=1.0), "a step that needs it, such as a Wait, found none"),
        (
            Collective(name="k", opcode="c", kind="all-reduce", is_async=True),
            "a step that needs it, such as a Wait, found none",
        ),
        (Kernel(name="k", opcode="f", tiles=5, classes=(TileClass(4), TileClass(2))), "5 tiles in all, found 6"),
        (Kernel(name="k", opcode="f", scalar=True, work=HALF), "of the scalar core alone in a scalar kernel"),
        (Kernel(name="k", opcode="f", flops=1e18), "work: expected some for 1e.18 FLOP, found none"),
        (Kernel(name="k", opcode="f", stages=(Work(ops={"bogus": 1.0}),)), r"stages\[0\].ops: .* found 'bogus'"),
        (Kernel(name="k", opcode="f", parts=(TilePart((Work(ops={"bogus": 1.0}),)),)), r"parts\[0\].stages\[0\].ops: "),
        (Wait(name="k", opcode="copy-done", needs=("j",)), "needs: expected the name of a step, found 'j'"),
    ],
)
def test_a_step_that_cannot_run_is_refused_by_name_and_place(step, words):
    """Negative counts, counts beyond all bounds, and loops that are not the tiles."""
    with pytest.raises(ProgramError, match=f"'k': .*{words}"):
        verify_program(Program(name="p", chip="v5e", steps=(step,)))


def test_numbers_of_buffers_and_of_the_whole_are_bounded():
    """As those of steps are: no float holds what a page would divide."""
    buffer = Buffer(name="b", n_bytes=10**400, space="hbm", kind="temporary", first=0, last=0)
    with pytest.raises(ProgramError, match=r"buffers\[0\].n_bytes: expected a number from 0 .* some 40. digits"):
        verify_program(Program(name="p", chip="v5e", steps=(), buffers=(buffer,)))
    with pytest.raises(ProgramError, match="temp_bytes: expected a number from 0"):
        verify_program(Program(name="p", chip="v5e", steps=(), temp_bytes=-1))


@pytest.mark.parametrize(
    ("schedule", "first", "last", "most"), [(("a",), 0, 2, 1), (("a", "b"), 2, 1, 2), ((), 0, 10**9, 2**20)]
)
def test_buffers_begin_and_end_at_positions_of_the_schedule(schedule, first, last, most):
    """Where nobody wrote one they are bounded all the same: what is alive is told for each."""
    buffer = Buffer(name="b", n_bytes=8, space="hbm", kind="temporary", first=first, last=last)
    with pytest.raises(ProgramError, match=rf"buffers\[0\]: expected .* at most {most}, found {first} to {last}"):
        verify_program(Program(name="p", chip="v5e", steps=(), buffers=(buffer,), schedule=schedule))


def test_two_steps_of_one_list_have_two_names():
    """A need could mean either of them; the same name in the body of another loop is no such case."""
    with pytest.raises(ProgramError, match="'k': expected a name of its own for each step"):
        verify_program(Program(name="p", chip="v5e", steps=(KERNEL, KERNEL)))
    verify_program(PROGRAM)


def test_every_kind_of_collective_has_a_plan():
    """What the text form accepts is what the network can carry out; pairs have a plan of their own."""
    assert set(_PLANS) | {"collective-permute"} == COLLECTIVE_KINDS


@pytest.mark.parametrize("levels", [12, 40])
def test_a_file_has_not_every_way_through_calls(tmp_path, levels):
    """What two calls share is written out for both: twelve levels are more than the file of three steps may have."""
    steps = (msgspec.structs.replace(KERNEL, name="inner"),)
    for level in range(levels):
        steps = tuple(Call(name=f"c{level}{side}", opcode="call", body=steps) for side in "ab")
    found = 3 * 2**levels - 2
    with pytest.raises(
        UnsupportedError, match=f"expected at most 8192 steps in a file, those of each call, found {found}"
    ):
        save_program(msgspec.structs.replace(PROGRAM, steps=steps, buffers=()), tmp_path / "p.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "beyond",
    [
        {"buffers": (msgspec.structs.replace(PROGRAM.buffers[0], n_bytes=2**63),)},
        {"steps": (msgspec.structs.replace(KERNEL, flops=1e25),), "buffers": ()},
    ],
)
def test_no_file_is_written_that_cannot_be_read(tmp_path, beyond):
    """The bounds of readers are those of writers: lowering finds programs of any size."""
    with pytest.raises(UnsupportedError, match=r"no file can hold this program: .*expected a number from 0 to"):
        save_program(msgspec.structs.replace(PROGRAM, **beyond), tmp_path / "p.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (structs.replace(KERNEL, tiles=0), "'k': expected at least one tile"),
        (structs.replace(KERNEL, tiles=1.5), r"'k': Expected `int`, got `float` - at `\$\.tiles`"),
        (structs.replace(KERNEL, tiles=10**400), "'k': tiles: expected a number from 0"),
        (structs.replace(KERNEL, flops=float("nan")), "'k': flops: expected a number from 0"),
        (structs.replace(KERNEL, work=Work(ops={"bogus": 5.0})), "'k': work.ops: expected one of"),
        (structs.replace(KERNEL, tiles="3"), r"'k': Expected `int`, got `str` - at `\$\.tiles`"),
        (structs.replace(KERNEL, streams=(Stream("a", "nosuch", 8.0),)), r"'nosuch' - at `\$\.streams\[0\]\.space`"),
        (Copy(name="c", opcode="copy-start", n_bytes=np.float32(-1)), "'c': n_bytes: expected a number from 0"),
        (
            Copy(name="c", opcode="copy-start", source_space="nosuch"),
            r"'c': Invalid enum value 'nosuch' - at `\$\.source_space`",
        ),
        (Copy(name="c", opcode="copy-start", n_bytes=-1.0), "'c': n_bytes: expected a number from 0"),
        (Loop(name="l", opcode="while", trips=-1, body=()), "'l': trips: expected a number from 0"),
    ],
)
def test_a_program_written_in_python_is_verified_as_its_file_would_be(step, words):
    """It was made by whoever calls; nothing has asked for its numbers before."""
    with pytest.raises(ProgramError, match=words):
        simulate(Program(name="p", chip="v5e", steps=(step,)))


def written_by_hand(**fields):
    """Return a program of one kernel, or of other fields."""
    return Program(**{"name": "p", "chip": "v5e", "steps": (KERNEL,)} | fields)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"chip": 0}, "program: Expected `str`, got `int` - at `$.chip`"),
        ({"topology": 1}, "program: Expected `str`, got `int` - at `$.topology`"),
        ({"provenance": 0}, "program: Expected `object | null`, got `int` - at `$.provenance`"),
        ({"buffers": "x"}, "program: Expected `array`, got `str` - at `$.buffers`"),
        ({"unsupported": "x"}, "program: Expected `array`, got `str` - at `$.unsupported`"),
        ({"format": 2}, "program: Expected `str`, got `int` - at `$.format`"),
        ({"file": b"x"}, "program: Expected `str`, got `bytes` - at `$.file`"),
        ({"figures": {"a": object()}}, "program: Expected `bool | int | float | str | array`, got `object`"),
        ({"steps": 0}, "program: Expected `array`, got `int` - at `$.steps`"),
        ({"steps": (KERNEL, None)}, "program: Expected `object`, got `null` - at `$.steps[1]`"),
    ],
)
def test_a_field_of_a_program_has_the_type_that_a_file_would_have(tmp_path, fields, found):
    """Python lets anything stand there; what only runs into it says nothing of the field."""
    for use in (simulate, lambda program: save_program(program, tmp_path / "p.json")):
        with pytest.raises(ProgramError) as caught:
            use(written_by_hand(**fields))
        assert found in str(caught.value)


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (structs.replace(KERNEL, name=np.int64(3)), "Expected `str`, got `int` - at `$.name`"),
        (structs.replace(KERNEL, stages=[0, 1]), "'k': Expected `object`, got `int` - at `$.stages[0]`"),
        (structs.replace(KERNEL, family=np.array(["a", "b"])), "'k': Expected `str`, got `numpy.ndarray`"),
        (structs.replace(KERNEL, loops=iter(())), "'k': Expected `array`, got `tuple_iterator` - at `$.loops`"),
        (structs.replace(KERNEL, tiles=True), "'k': Expected `int`, got `bool` - at `$.tiles`"),
        (Copy(name="c", opcode="copy-start", category=()), "'c': Expected `str`, got `array` - at `$.category`"),
        (HostTransfer(name=((0, 1),), opcode="infeed"), "((0, 1),): Expected `str`, got `array` - at `$.name`"),
        (ChannelTransfer(name="s", opcode="send", pairs=0), "'s': Expected `array | null`, got `int` - at `$.pairs`"),
        (Collective(name="a", opcode=1, kind="all-reduce"), "'a': Expected `str`, got `int` - at `$.opcode`"),
        (Collective(name="a", opcode="all-reduce", algorithm=0), "'a': Expected `object | null`, got `int`"),
        (Collective(name="a", opcode="all-reduce", groups=((0.0,),)), "got `float` - at `$.groups[0][0]`"),
        (
            Branch(name="b", opcode="conditional", choices=[0, 1]),
            "'b': Expected `object`, got `int` - at `$.choices[0]`",
        ),
        (Branch(name="b", opcode="conditional", branches=((0,),)), "got `int` - at `$.branches[0][0]`"),
        (Call(name="f", opcode="call", body=((KERNEL,),)), "'f': Expected `object`, got `array` - at `$.body[0]`"),
        (Loop(name="l", opcode="while", body=(structs.replace(KERNEL, op_name=3),)), "'k': Expected `str`, got `int`"),
        (Step(name="s", opcode="add"), "'s': Invalid value 'Step' - at `$.type`"),
    ],
)
def test_a_field_of_a_step_has_the_type_that_a_file_would_have(tmp_path, step, found):
    """The error names the step, one inside another by itself, and the field."""
    for use in (simulate, lambda program: save_program(program, tmp_path / "p.json")):
        with pytest.raises(ProgramError) as caught:
            use(written_by_hand(steps=(step,)))
        assert found in str(caught.value)


def test_the_error_of_a_type_is_that_of_the_file(tmp_path):
    """The same words, whichever way the program comes."""
    (tmp_path / "p.json").write_text('{"format": "tpusim-program-2", "name": "p", "chip": 0, "steps": []}')
    with pytest.raises(ProgramError, match=r"Expected `str`, got `int` - at `\$\.chip`"):
        load_program(tmp_path / "p.json")
    with pytest.raises(ConfigError, match="program: expected a lowered program, found None"):
        save_program(None, tmp_path / "p.json")


def test_rows_and_numbers_of_other_kinds_are_those_of_the_file(tmp_path):
    """NumPy's numbers, lists and kinds of text: a run and a file take them as what is written of them."""
    stream = Stream("a", "hbm", np.float32(8.0), np.int64(1), np.bool_(False), address=np.int64(64))
    kernel = structs.replace(KERNEL, streams=[stream], tiles=np.int32(2), flops=np.float64(8.0))
    groups = [[np.int64(0), np.int64(1)]]
    sent = Collective(name="s", opcode="all-reduce", kind="all-reduce", n_bytes=np.float64(8), groups=groups)
    program = written_by_hand(name=np.str_("p"), steps=[kernel, Call(name="f", opcode="call", body=[sent])])
    save_program(program, tmp_path / "p.json")
    read = load_program(tmp_path / "p.json")
    assert (read.steps[0].streams[0].address, read.steps[1].body[0].groups) == (64, ((0, 1),))
    assert as_read(program) == read
    assert simulate(program, topology="v5e:1x2").timeline == simulate(read, topology="v5e:1x2").timeline


def test_steps_that_several_hold_are_looked_at_once():
    """Forty levels of two calls each would never end otherwise; they stay shared, as the machine has them."""
    steps = (KERNEL,)
    for level in range(40):
        steps = tuple(Call(name=f"c{level}{side}", opcode="call", body=steps) for side in "ab")
    program = written_by_hand(steps=steps)
    assert len(as_read(program).every_step) == len(program.every_step) == 81


def test_a_program_is_looked_at_once(tmp_path):
    """One from a file not at all: its reader has done so."""
    program = written_by_hand()
    assert as_read(as_read(program)) is as_read(program)
    save_program(program, tmp_path / "p.json")
    read = load_program(tmp_path / "p.json")
    assert as_read(read) is read


@pytest.mark.parametrize(("shares", "is_refused"), [((0.75, 0.25), False), ((0.5, 0.5), True), ((0.875, 0.125), True)])
def test_products_of_each_type_have_rows_for_their_own_operations(shares, is_refused):
    """Three rows of s8 and one of bf16 on arrays of one multiplier, for 8 FLOP in all."""
    work = Work(matmuls=(Matmul(1.0, 3.0, operand_type="s8"), Matmul(1.0, 1.0)))
    stated = dict(zip(("s8", "bf16"), shares, strict=True))
    kernel = Kernel(name="k", opcode="f", work=work, flops=8.0, product_flops=8.0, type_shares=stated)
    program = Program(name="p", chip="v5e", steps=(kernel,))
    with pytest.raises(ProgramError, match="FLOP of ") if is_refused else nullcontext():
        verify_products(program, 1)


@pytest.mark.parametrize("field", ["figures", "steps", "unsupported"])
def test_an_array_is_no_list_of_a_program(field):
    """Nor an object with fields, for which msgspec takes it."""
    program = structs.replace(Program(name="p", chip="v5e", steps=()), **{field: np.array([1, 2])})
    with pytest.raises((ProgramError, ConfigError)):
        encode_program(program)
