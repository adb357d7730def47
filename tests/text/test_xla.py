"""XLA's parser as the oracle: what it reads we read, what it refuses we refuse, and our text means the same to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text import xla
from tests.text.programs import ALL, entry, name_of, source
from tpusim.errors import ProgramError
from tpusim.text import parse_module, print_module, read_source

P = "p = f32[4] parameter(0)"
Q = "q = f32[2,3] parameter(0)"

STATE = "((f32[4]), f32[4], u32[])"
CALLED = "async-start(p), calls=w"


def under_way(start: str, *lines: str) -> str:
    """Return a program that starts something, which may be the computation ``w``; the lines go on with it."""
    wrapped = "w {\n x = f32[4] parameter(0)\n ROOT n = f32[4] negate(x)\n}\n"
    return entry(P, f"s = {STATE} {start}", *lines).replace("ENTRY", wrapped + "ENTRY")


GOOD = {
    "percent names": entry("%maximal = f32[] parameter(0)"),
    "no shape where it follows": entry(P, "n = negate(p)", "t = tuple(n, p)", "g = get-tuple-element(t), index=1"),
    "shapes of a padding, a product and a factor": entry(
        Q,
        "z = f32[] constant(0)",
        "a = pad(q, z), padding=1_1x0_0_1",
        "d = dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "c = cholesky(d)",
    ),
    "scalar starts into a buffer": entry(
        "b = b(f32[2,3]) parameter(0)",
        "u = f32[2,3] parameter(1)",
        "s = s32[] constant(0)",
        "c = b(f32[2,3]) dynamic-update-slice(b, u, s, s)",
    ),
    "nested operands": entry(P, "a = f32[4] add(p, multiply(p, p))", "b = f32[4] add(p, multiply(p, p))"),
    "trailing comma in operands": entry(P, "a = f32[4] negate(p,)"),
    "operand with another layout": entry(Q, "n = f32[2,3] negate(f32[2,3]{0,1} q)"),
    "result shape is the verifier's": entry(P, "n = s32[5] negate(p)"),
    "broadcast of a scalar": entry("c = f32[] constant(1)", "b = f32[3] broadcast(c)"),
    "dynamic sizes": entry("d = f32[<=4,?] parameter(0)"),
    "capital precision": entry(P, "d = f32[] dot(p, p), lhs_contracting_dims={0}, operand_precision={HIGHEST,high}"),
    "window without size": entry(P, "c = f32[] convolution(p, p), dim_labels=bf_io->bf, window={}"),
    "short end of a long start": under_way(CALLED, "d = f32[4] negate-done(s)"),
    "long end of a short start": under_way("negate-start(p)", "d = f32[4] async-done(s)"),
    "short update of a long start": under_way(CALLED, f"u = {STATE} negate-update(s)", "d = f32[4] async-done(u)"),
    "long update of a short start": under_way(
        "call-start(p), to_apply=w", f"u = {STATE} async-update(s)", "d = f32[4] call-done(u)"
    ),
    "json with single quotes": entry("p = f32[] parameter(0), backend_config={'a': 1}"),
    "empty frontend attributes": entry("p = f32[] parameter(0), frontend_attributes={}"),
    "synthetic origin": entry("p = f32[] parameter(0), origin={[synthetic_call]}"),
    "escapes in metadata": entry(r"""p = f32[] parameter(0), metadata={op_name="p[\'w\'][\"x\"]\n\\" source_line=3}"""),
    "escapes in frontend attributes": entry(r'p = f32[] parameter(0), frontend_attributes={a.b="\'\"",c="}"}'),
    "metadata with commas": entry('p = f32[] parameter(0), metadata={op_name="a", source_line=3}'),
    "reserved prefix of xla": entry("%__xla_p = f32[] parameter(0)"),
    "entry layout": "HloModule m, entry_computation_layout={()->f32[]}\nENTRY e {\n a = f32[] constant(1)\n}",
    "no blanks": "HloModule m ENTRY e{a = f32[] constant(1)}",
    "escapes": entry(r'c = f32[] custom-call(), custom_call_target="\x41\101\n\u00e9"'),
}
BAD = {
    "nothing": "",
    "two entries": "ENTRY a {\n x = f32[] constant(1)\n}\nENTRY b {\n x = f32[] constant(1)\n}",
    "two roots": entry("ROOT a = f32[] constant(1)", "ROOT b = f32[] constant(1)"),
    "no instructions": "HloModule m\n\nENTRY e {\n}",
    "no computations": "HloModule m",
    "text after the module": entry(P) + "x",
    "name twice": entry(P, "p = f32[4] negate(p)"),
    "computation twice": "a {\n x = f32[] constant(1)\n}\na {\n x = f32[] constant(1)\n}",
    "undefined operand": entry("n = f32[] negate(x)"),
    "operand defined below": entry("n = f32[] negate(x)", "x = f32[] parameter(0)"),
    "undefined computation": entry(P, "c = f32[4] call(p), to_apply=f"),
    "unknown opcode": entry(P, "n = f32[4] negat(p)"),
    "own asynchronous form": entry(P, "n = f32[4] copy-update(p)"),
    "one operand too many": entry(P, "n = f32[4] negate(p, p)"),
    "one operand too few": entry(P, "n = f32[4] add(p)"),
    "unknown attribute": entry(P, "n = f32[4] negate(p), dimensions={0}"),
    "an unknown escape in metadata": entry(r'p = f32[] parameter(0), metadata={op_name="\q"}'),
    "a comma after frontend attributes": entry('p = f32[] parameter(0), frontend_attributes={a="b",}'),
    "attribute twice": entry(P, 'n = f32[4] negate(p), metadata={}, metadata={op_name="a"}'),
    "missing attribute": entry(P, "n = f32[4] iota()"),
    "array broadcast without dimensions": entry(P, "b = f32[2,4] broadcast(p)"),
    "shape that cannot be inferred": entry(P, "c = convert(p)"),
    "shape that its rule refuses": entry(P, Q.replace("0", "1"), "a = add(p, q)"),
    "wrong operand shape": entry(P, "n = f32[4] negate(f32[5] p)"),
    "layout of another rank": entry("p = f32[4]{1,0} parameter(0)"),
    "type in capitals": entry("p = F32[4] parameter(0)"),
    "word as a name": entry("true = f32[4] parameter(0)"),
    "type as a name": entry("%f32 = f32[4] parameter(0)"),
    "reserved name": entry("%__p = f32[4] parameter(0)"),
    "no blank before the equals sign": entry("p= f32[4] parameter(0)"),
    "negative parameter number": entry("p = f32[4] parameter(-1)"),
    "parameter number twice": entry(P, "q = f32[4] parameter(0)"),
    "tuple of another length": entry(P, "t = (f32[4]) tuple(p, p)"),
    "odd operands of a reduction": entry(
        P, "r = f32[] reduce(p, p, p), dimensions={0}, to_apply={ a = f32[] parameter(0) }"
    ),
    "signature against the root": "HloModule m\n\nENTRY e (p: f32[]) -> f32[2] {\n p = f32[] parameter(0)\n}",
    "conditional on a float": entry(P, "c = f32[4] conditional(p, p, p), branch_computations={}"),
    "start of dynamic slice missing": entry(
        Q, "i = s32[] constant(0)", "d = f32[1,1] dynamic-slice(q, i), dynamic_slice_sizes={1,1}"
    ),
    "constraint of another shape": entry(
        P, 'c = f32[4]{0} custom-call(p), custom_call_target="x", operand_layout_constraints={f32[5]{0}}'
    ),
    "pairs of three": entry(P, "c = f32[4] collective-permute(p), source_target_pairs={{0,1,2}}"),
    "global ids without a channel": entry(
        P, "c = f32[4] all-reduce(p), use_global_device_ids=true, to_apply={ a = f32[] parameter(0) }"
    ),
    "done of nothing": entry(P, "d = f32[4] slice-done(p)"),
    "end of another operation": under_way("negate-start(p)", "d = f32[4] slice-done(s)"),
    "end of another operation than is called": under_way(CALLED, "d = f32[4] slice-done(s)"),
    "end of a call where an operation is called": under_way(CALLED, "d = f32[4] call-done(s)"),
    "end of what a call calls": under_way("call-start(p), to_apply=w", "d = f32[4] negate-done(s)"),
    "update of another operation than is called": under_way(
        CALLED, f"u = {STATE} slice-update(s)", "d = f32[4] async-done(u)"
    ),
    "computation at the end of a short form": under_way("negate-start(p)", "d = f32[4] async-done(s), calls=w"),
    "start without a tuple": entry(P, "s = f32[4] slice-start(p), slice={[0:1]}"),
    "labels twice": entry(P, "c = f32[] convolution(p, p), dim_labels=bb_io->bf"),
    "window of two lengths": entry(P, "c = f32[] convolution(p, p), dim_labels=bf_io->bf, window={size=1x1 stride=1}"),
    "slice of one number": entry(P, "s = f32[4] slice(p), slice={[0]}"),
    "unknown direction": entry(P, "c = pred[4] compare(p, p), direction=EG"),
    "sharding of nothing": entry("p = f32[4] parameter(0), sharding={devices=[1]0}"),
    "replication of another count": entry("p = f32[4] parameter(0), parameter_replication={true,false}"),
    "unclosed json": entry('p = f32[4] parameter(0), backend_config={"a": {}'),
    "bad escape": entry(r'c = f32[] custom-call(), custom_call_target="\q"'),
    "metadata field twice": entry("p = f32[4] parameter(0), metadata={source_line=1 source_line=2}"),
    "metadata beyond 32 bits": entry("p = f32[4] parameter(0), metadata={source_line=3000000000}"),
    "unknown module attribute": "HloModule m, is_schedule=true\n\nENTRY e {\n a = f32[] constant(1)\n}",
    "alias of no result": "HloModule m, input_output_alias={ {3}: (0, {}) }\n\nENTRY e {\n a = f32[] parameter(0)\n}",
    "three tables": 'HloModule m\nFileNames\n1 "a"\nFunctionNames\nFileLocations\nENTRY e {\n a = f32[] constant(1)\n}',
    "one instruction with a nameless operand": "add(x, y)",
    "unclosed comment": entry(P) + "/* x",
}


@pytest.mark.parametrize("name", GOOD)
def test_what_xla_reads_we_read(name: str) -> None:
    """The table's texts are read by both."""
    assert xla.accepts(GOOD[name])
    parse_module(source(GOOD[name]))
    parse_module(source(GOOD[name]), careful=True)


@pytest.mark.parametrize("name", BAD)
def test_what_xla_refuses_we_refuse(name: str) -> None:
    """The table's texts are refused by both, and by us whichever way they are read."""
    assert not xla.accepts(BAD[name])
    with pytest.raises(ProgramError):
        parse_module(source(BAD[name]))
    with pytest.raises(ProgramError):
        parse_module(source(BAD[name]), careful=True)


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_xla_reads_our_text_as_the_original(path: Path) -> None:
    """XLA prints one thing after reading either."""
    program = read_source(path)
    assert xla.reprint(print_module(parse_module(program))) == xla.reprint(program.text)


@pytest.mark.parametrize("name", GOOD)
def test_xla_reads_our_print_of_unusual_texts_as_the_original(name: str) -> None:
    """The table's texts come out in another form, and mean the same."""
    assert xla.reprint(print_module(parse_module(source(GOOD[name])))) == xla.reprint(GOOD[name])


@pytest.mark.parametrize(
    "text",
    [
        entry("p = f32[4] parameter(1)"),
        entry("c = s32[] constant(true)"),
        entry("p = f32[4]{0:T(-2,3)} parameter(0)"),
        entry("c = token[] constant(1)"),
        entry(P, "c = f32[4] all-gather(p), dimensions={0}, replica_groups=mesh['a'=2] {'b'}"),
        entry(P, "c = f32[4] all-gather(p), dimensions={0}, replica_groups=mesh['a'=2,'b'=2] {'a':(1)2, 'a':(1)2}"),
    ],
)
def test_what_aborts_xla_is_an_error_of_ours(text: str) -> None:
    """These texts end XLA's process (so it is not asked here); a user of ours sees an ordinary error."""
    with pytest.raises(ProgramError):
        parse_module(source(text))


NUMBERS = [
    "0",
    "-1",
    "7",
    "8",
    "127",
    "128",
    "255",
    "256",
    "300",
    "65504",
    "65519.99",
    "65520",
    "2e38",
    "3.4e38",
    "1e39",
]
TYPES = "s2 s4 s8 s32 s64 u2 u4 u8 u32 u64 f16 bf16 f32 f64 f8e5m2 f8e4m3 f8e4m3fn f8e3m4 f8e4m3b11fnuz f4e2m1fn pred"


def check_verdict(text: str) -> None:
    """Require that we accept what XLA accepts, and refuse what it refuses."""
    try:
        parse_module(source(text))
    except ProgramError:
        assert not xla.accepts(text)
    else:
        assert xla.accepts(text)


@pytest.mark.parametrize("dtype", [*TYPES.split(), "f8e5m2fnuz", "f8e4m3fnuz", "f8e8m0fnu"])
@pytest.mark.parametrize("number", [*NUMBERS, "nan(0x1)", "nan(0x40)", "nan(0x400)", "nan(0x800000)", "inf", "-nan"])
def test_the_range_of_a_type_is_xlas(dtype: str, number: str) -> None:
    """Integers out of range, floats that round to infinity and NaN payloads without room are refused by both."""
    text = entry(f"c = {dtype}[] constant({number})")
    check_verdict(text)


@pytest.mark.parametrize(
    ("shape", "literal"),
    [
        ("f32[2]", "{1,2}"),
        ("f32[2]", "{1,2,3}"),
        ("f32[2]", "{1}"),
        ("f32[2]", "{{1,2}}"),
        ("f32[2,2]", "{{1,2},{3,4}}"),
        ("f32[2,2]", "{{1,2},{3}}"),
        ("f32[2,2]", "{1,2,3,4}"),
        ("f32[2,2]", "{{1,2}}"),
        ("f32[2,2]", "{{1 2}{3 4}}"),
        ("f32[0]", "{}"),
        ("f32[2,0]", "{}"),
        ("f32[0,2]", "{}"),
        ("f32[2,2]", "{...}"),
        ("f32[2,2]", "{{...},{1,2}}"),
        ("f32[]", "{1}"),
        ("s32[]", "1.0"),
        ("f32[]", "1."),
        ("f32[]", "+1"),
        ("f32[]", "0x10"),
        ("f32[]", "1e400"),
        ("c64[]", "(1, 2)"),
        ("c64[]", "1"),
        ("c64[]", "(1e39, 0)"),
        ("c64[2]", "{(1,2),(3,4)}"),
        ("pred[2]", "{true, 0}"),
        ("pred[]", "0.5"),
        ("(f32[], s32[2])", "(1, {2, 3})"),
        ("(f32[], s32[2])", "(1)"),
        ("()", "()"),
        ("f32[2]", ""),
    ],
)
def test_the_form_of_a_literal_is_xlas(shape: str, literal: str) -> None:
    """Nesting, counts and spelling of elements are accepted and refused as by XLA."""
    text = entry(f"c = {shape} constant({literal})")
    check_verdict(text)
