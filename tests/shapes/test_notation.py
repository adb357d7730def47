"""Shapes from text: the whole notation, round trips, XLA's own reading, and errors with their place."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.shapes.strategies import arrays, shapes
from tpusim.errors import ProgramError
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.layout import COMBINE, Layout
from tpusim.shapes.notation import parse_shape, parse_shape_prefix
from tpusim.shapes.shape import ArrayShape, BufferShape, Shape, TupleShape, shape_text, with_default_layouts
from tpusim.source import SourceText

F32 = DTYPES["f32"]


@given(arrays())
def test_a_printed_array_reads_back_as_itself(shape: Shape) -> None:
    """Every part of a layout, every element type and every kind of size comes back."""
    assert parse_shape(str(shape)) == shape


@pytest.mark.slow
@given(shapes())
def test_a_printed_shape_reads_back_as_itself(shape: Shape) -> None:
    """Printing loses nothing that has a text form."""
    assert parse_shape(str(shape)) == shape


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("f32[]", ArrayShape(F32)),
        # What is not printed is not there: else the same program would be judged otherwise when it is read again.
        ("f32[]{:}", ArrayShape(F32)),
        ("f32[ ] {:S(0)}", ArrayShape(F32)),
        ("f32[]{:T(128)}", ArrayShape(F32, (), (), Layout((), ((128,),)))),
        ("f32[2,3]{0,1}", ArrayShape(F32, (2, 3), (), Layout((0, 1)))),
        ("token[]", ArrayShape(DTYPES["token"])),
        ("f32[<=5,?]", ArrayShape(F32, (5, -1), (True, True))),
        ("f32[4]{0:T(*,2)}", ArrayShape(F32, (4,), (), Layout((0,), ((COMBINE, 2),)))),
        ("f32[4]{0:T(-1,2)}", ArrayShape(F32, (4,), (), Layout((0,), ((COMBINE, 2),)))),
        ("()", TupleShape()),
        ("((), (f32[]))", TupleShape((TupleShape(), TupleShape((ArrayShape(F32),))))),
        ("b(f32[2])", BufferShape(ArrayShape(F32, (2,)))),
    ],
)
def test_notation_means(text: str, shape: Shape) -> None:
    """One form of the notation each."""
    assert parse_shape(text) == shape


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("F32[3,5]{1,0:(2,2)}", "f32[3,5]{1,0:T(2,2)}"),
        ("F32[112,110]{1,0}", "f32[112,110]{1,0}"),
        ("F32[2,7,8,11,10]{4,3,2,1,0:(\u2217,\u2217,2,\u2217,3)}", "f32[2,7,8,11,10]{4,3,2,1,0:T(*,*,2,*,3)}"),
        ("PRED[7]", "pred[7]"),
    ],
)
def test_the_spelling_of_the_documents_is_read(text: str, plain: str) -> None:
    """XLA, "Tiled layout", writes types in capitals and tiles without T; what is printed is HLO's form."""
    assert str(parse_shape(text)) == plain


@pytest.mark.parametrize(
    "text",
    [
        " f32[ 2 , 3 ] { 1 , 0 : T ( 2 , 2 ) S ( 1 ) } ",
        "f32[2,/* two\nlines */3]{1,0:T(2,2)S(1)}",
        "f32[2,3]{1,0:T(2,2)S(1)} // to the end",
    ],
)
def test_blanks_and_comments_may_stand_anywhere(text: str) -> None:
    """HLO's lexer passes over them between any two tokens."""
    assert parse_shape(text) == parse_shape("f32[2,3]{1,0:T(2,2)S(1)}")


XLA_READS = [
    *("f32[]", "f32[2,3]", "f32[2,3]{0,1}", "bf16[10,300]{1,0:T(8,128)(2,1)S(1)}", "f32[]{:T(128)S(6)}", "f32[]{:}"),
    *("()", "(f32[2]{0}, s32[], token[], ())", "((f32[2], s32[3]), u32[])", f"({', '.join(['f32[2]'] * 12)})"),
    *("f32[<=5, ?,3]", "f32[<=5,3]{1,0:T(2,2)M(16)}", "f32[9223372036854775807,2]", "f32[02]{0}", "opaque[]"),
    *("f32[ 2 , 3 ] { 1 , 0 : T(2,2) S ( 1 ) }", "f32[3]{0:SC(0:1,2)}", "b(f32[2]{0})", "b (f32[2])"),
    *("s4[2]{0:E(4)}", "s1[2]{0:E(1)}", "f32[2]{0:S(0)}", "f32[2]{0:E(0)}", "f32[2]{0:M(0)}", "f32[2]{0:L(1)}"),
    *("f32[2]{0:}", "f32[2]{0:T(2)(2,2)}", "f32[2,3]{1,0:T(*,2)(2,1)L(8)#(u32)*(u64)E(32)S(3)SC(0:1,2)(1:1)}"),
    *(f"{name}[3]" for name, row in DTYPES.items() if row.is_array_type),
]
XLA_REFUSES = [
    *("", "f32", "f32[", "f32[2", "f33[2]", "invalid[]", "f32[2,]", "f32[<=?]", "f32[-1]", "f32[9223372036854775808]"),
    *("f32[2]{0", "f32[2]{}", "f32[]{}", "f32[2]{0,1}", "f32[2]{0}{0}", "f32[2]{0:T(2,)}", "f32[2]{0:T(2)T(2)}"),
    *("f32[2]{0:S(1)E(8)}", "f32[2]{0:SC()}", "(f32[2]", "(f32[2],)", "b((f32[2]))", "b(b(f32[2]))"),
]


def xla_reads(text: str) -> str:
    """Return the shape as XLA prints it after reading it; raises what XLA raises."""
    hlo = pytest.importorskip("jaxlib._hlo")
    module = hlo.hlo_module_from_text(f"HloModule m\nENTRY e {{ ROOT p = {text} parameter(0) }}").to_string()
    line = next(line for line in module.splitlines() if "parameter(0)" in line)
    return str(line.split(" = ", 1)[1].rsplit(" parameter(0)", 1)[0])


@pytest.mark.parametrize("text", XLA_READS)
def test_what_xla_reads_prints_as_xla_prints_it(text: str) -> None:
    """XLA gives every array a layout as it reads; ours given the same, both print one text."""
    assert str(with_default_layouts(parse_shape(text))) == xla_reads(text)


@pytest.mark.parametrize("text", XLA_REFUSES)
def test_what_xla_refuses_is_refused(text: str) -> None:
    """Both parsers find fault with the same texts."""
    with pytest.raises(ProgramError):
        parse_shape(text)
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT"):
        xla_reads(text)


@pytest.mark.parametrize(
    "text",
    [
        *("f32[2]{0:T(-1)}", "token[3]", "token[]{:S(1)}", "f32[2]{0:L(0)}"),
        *("f32[2,2]{1,1}", "f32[2]{0:T(2}", "f32[2]{0:T()}", "f32[2]{0:T(0)}", "f32[2]{0:T(*)}", "f32[2]{0:#(f32)}"),
    ],
)
def test_what_xla_reads_amiss_is_refused(text: str) -> None:
    """XLA's parser ends the process on the first four and lets the others pass, though no array can lie like that."""
    with pytest.raises(ProgramError):
        parse_shape(text)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("f32[2,x]", 7, "expected a number, found 'x]'"),
        ("f33[2]", 1, "did you mean 'f32'"),
        ("(f32[2], f32[3]", 16, "expected ',' or ')' in a tuple, found the end"),
        ("f32[2]{1}", 7, "permutation of 0..0"),
        ("f32[2,3]{0}", 9, "layout of 2 dimensions"),
        ("f32[2]{0:S(1)T(2)}", 14, "in the order D() T() L() #() *() E() S() SC() P() M()"),
        ("f32[2]{0:T(2)} and", 16, "expected the end of the shape, found 'and'"),
        ("f32[2]{0:#(f32)}", 12, "expected an integer type"),
        ("f32[2]{0:P(f32[2]{0:P(f32[2])})}", 23, "no P() in the layout of a physical shape"),
    ],
)
def test_an_error_points_at_its_place(text: str, column: int, words: str) -> None:
    """The column is that of the first character at fault, and the caret stands under it."""
    with pytest.raises(ProgramError) as caught:
        parse_shape(text)
    message, line, caret = str(caught.value).split("\n")
    assert message.startswith(f"<shape>:1:{column}: ")
    assert words in message
    assert (line, caret.index("^")) == (f"  {text}", column + 1)


@pytest.mark.parametrize(
    "text",
    ["(" * 10_000_000, "b(" * 1_000_000, "f32[2]{0:P(" * 1_000_000, "f32[" + "9" * 1_000_000, "/*" * 1_000_000],
    ids=["parentheses", "buffers", "physical shapes", "digits", "comments"],
)
def test_a_hostile_text_is_an_error_and_not_a_crash(text: str) -> None:
    """Neither Python's stack nor its limit on digits is reached."""
    with pytest.raises(ProgramError):
        parse_shape(text)


def test_tuples_may_nest_as_deep_as_any_program_nests_them() -> None:
    """A hundred levels, more than any program has, read and print back."""
    text = "(" * 100 + "f32[]" + ")" * 100
    assert str(parse_shape(text)) == text


def test_a_shape_inside_a_text_ends_where_it_ends() -> None:
    """What follows is left to the caller; a brace before a name opens a computation, not a layout."""
    text = "x = (f32[2]{0}, s32[]) add(y), c: f32[3] { ROOT"
    assert parse_shape_prefix(text, 4)[1] == text.index(" add")
    shape, end = parse_shape_prefix(text, text.index("f32[3]"))
    assert (shape_text(shape), text[end:]) == ("f32[3]", " { ROOT")


@pytest.mark.parametrize("text", ["f32[3] /* a */ {0}", "f32[3] {0}", "f32[3]{/* a */0}"])
def test_a_layout_may_follow_at_a_distance(text: str) -> None:
    """The brace belongs to the shape if a number follows it, blanks and comments aside."""
    shape, end = parse_shape_prefix(text + " add", 0)
    assert (str(shape), end) == ("f32[3]{0}", len(text))


def test_an_error_inside_a_text_names_that_text() -> None:
    """Line and column are those of the file that the shape stands in."""
    source = SourceText("a.hlo", "HloModule m\n x = f32[2]{5} add")
    with pytest.raises(ProgramError, match=r"a\.hlo:2:12: expected minor_to_major to be a permutation"):
        parse_shape_prefix(source.text, source.text.index("f32"), source)


def test_equal_layouts_are_one_object() -> None:
    """A program has thousands of shapes but few layouts."""
    first, second = parse_shape("f32[2,3]{1,0:T(8,128)}"), parse_shape("bf16[4,5]{1,0:T(8,128)}")
    assert isinstance(first, ArrayShape)
    assert isinstance(second, ArrayShape)
    assert first.layout is second.layout


@pytest.mark.parametrize("text", ["f32[" + "1," * 3_000_000, "f32[2]{0:T(" + "1," * 3_000_000])
def test_endless_lists_are_refused_at_once(text):
    """Megabytes of sizes are garbage; reading them all would take seconds and half a gigabyte."""
    with pytest.raises(ProgramError, match="at most 4,096 entries"):
        parse_shape(text)
