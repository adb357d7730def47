"""Pass 7: kernels that go through the same elements are one, as libtpu 0.0.52 has them for v5e."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import LESS, SUM, compiled
from tpusim.compiler.fuse.group import Spans
from tpusim.pipeline.stages import execute
from tpusim.semantics.contents import contents
from tpusim.shapes.shape import leaves
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

HEAD = """HloModule m

sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
most { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT c = bf16[] maximum(a, b) }
count { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT c = s32[] add(a, b) }

ENTRY e {
  none = f32[] constant(0)
  nothing = s32[] constant(0)
  least = bf16[] constant(-inf)
  x = f32[2048,2048] parameter(0)
  y = f32[2048,2048] parameter(1)
  z = f32[2048,2048] parameter(2)
  b = bf16[2048,2048] parameter(3)
  v = f32[2048] parameter(4)
  s = f32[] parameter(5)
"""

OF_ONE_TYPE = {
    "loops over one array": "f32[2048,2048] negate(x); f32[2048,2048] tanh(x)",
    "loops that share one of two arrays": "f32[2048,2048] add(x, y); f32[2048,2048] multiply(x, z)",
    "one after the other": "f32[2048,2048] add(x, y); f32[2048,2048] multiply(y, z); f32[2048,2048] negate(z)",
    "a loop and sums along both dimensions": """
        f32[2048] reduce(x, none), dimensions={0}, to_apply=sum;
        f32[2048] reduce(x, none), dimensions={1}, to_apply=sum;
        f32[2048,2048] add(x, y)""",
    "sums of what is made, and a loop": """
        f32[2048,2048] w = tanh(x); f32[2048,2048] u = add(w, y);
        f32[2048] reduce(u, none), dimensions={1}, to_apply=sum; f32[2048,2048] negate(x)""",
    "what both make for themselves": """
        f32[2048,2048] w = exponential(x); f32[2048,2048] negate(w); f32[2048,2048] tanh(w)""",
    "slices of the same place": """
        f32[1024,2048] w = slice(x), slice={[0:1024], [0:2048]}; f32[1024,2048] negate(w); f32[1024,2048] tanh(w)""",
    "a row that both broadcast": """
        f32[2048,2048] w = broadcast(v), dimensions={1}; f32[2048,2048] add(x, w); f32[2048,2048] multiply(y, w)""",
    "results converted at last": """
        f32[2048,2048] w = add(x, y); bf16[2048,2048] convert(w); f32[2048,2048] multiply(x, y)""",
    "an array that is converted alone": "bf16[2048,2048] negate(b); f32[2048,2048] convert(b)",
    "comparisons": """
        pred[2048,2048] compare(x, y), direction=GT; pred[2048,2048] compare(x, y), direction=EQ""",
    "results of a product": """
        f32[2048,2048] w = dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0};
        f32[2048,2048] exponential(w); f32[2048,2048] tanh(w)""",
    "results and sums of a product": """
        f32[2048,2048] w = dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0};
        f32[2048,2048] tanh(w); f32[2048,2048] u = multiply(w, z);
        f32[2048] reduce(u, none), dimensions={0}, to_apply=sum""",
    "vectors": "f32[2048] negate(v); f32[2048] tanh(v); f32[] reduce(v, none), dimensions={0}, to_apply=sum",
}
"""Bodies of which one kernel is made; what is not named is a result."""

APART = {
    "of two types": "bf16[2048,2048] negate(b); f32[2048,2048] w = convert(b); f32[2048,2048] multiply(w, y)",
    "of numbers and conditions": """
        f32[2048,2048] tanh(x); pred[2048,2048] w = compare(x, y), direction=GT; s8[2048,2048] convert(w)""",
    "of floats and integers": "f32[2048,2048] negate(x); s32[2048,2048] w = convert(x); s32[2048,2048] negate(w)",
    "sums of two types": """
        pred[2048,2048] w = compare(x, y), direction=GT; s32[2048,2048] u = convert(w);
        s32[] reduce(u, nothing), dimensions={0,1}, to_apply=count;
        f32[] reduce(x, none), dimensions={0,1}, to_apply=sum""",
    "a maximum and a sum of wider numbers": """
        bf16[2048] reduce(b, least), dimensions={0}, to_apply=most; f32[2048,2048] w = convert(b);
        f32[2048] reduce(w, none), dimensions={0}, to_apply=sum""",
    "that share a number": """
        f32[2048,2048] w = broadcast(s), dimensions={}; f32[2048,2048] add(x, w); f32[2048,2048] multiply(y, w)""",
    "of other sizes": """
        f32[1024,2048] w = slice(x), slice={[0:1024], [0:2048]}; f32[1024,2048] negate(w); f32[2048,2048] tanh(x)""",
    "beside what follows a product": """
        f32[2048,2048] w = dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0};
        f32[2048,2048] add(w, z); f32[2048,2048] negate(z)""",
    "of which one needs the other whole": """
        f32[2048,2048] w = add(x, y); f32[] u = reduce(w, none), dimensions={0,1}, to_apply=sum;
        f32[2048,2048] t = broadcast(u), dimensions={}; f32[2048,2048] multiply(x, t); f32[2048,2048] negate(w)""",
    "of which one turns round what the other makes": """
        f32[2048,2048] w = add(x, y); f32[2048,2048] u = transpose(w), dimensions={1,0};
        f32[2048,2048] t = multiply(u, w); f32[2048] reduce(t, none), dimensions={0}, to_apply=sum;
        f32[2048,2048] tanh(w)""",
}
"""Bodies of which two kernels are made."""


def program(body):
    """Return the text of a program whose results are those instructions of a body that have no name."""
    lines, results = [], []
    for number, one in enumerate(part.strip() for part in body.split(";")):
        shape, rest = one.split(" ", 1)
        name, equals, call = rest.partition(" = ")
        if not equals:
            name, call = f"r{number}", rest
            results.append((name, shape))
        lines.append(f"  {name} = {shape} {call}")
    shapes, names = ", ".join(shape for _, shape in results), ", ".join(name for name, _ in results)
    return HEAD + "\n".join(lines) + f"\n  ROOT out = ({shapes}) tuple({names})\n}}\n"


@pytest.mark.parametrize("name", OF_ONE_TYPE)
def test_what_goes_through_the_same_elements_is_one_kernel(name):
    """Whether it reads one array or is made of it, if it is computed in one type."""
    assert contents(compiled(program(OF_ONE_TYPE[name]))).kernels == 1


@pytest.mark.parametrize("name", APART)
def test_kernels_stay_apart(name):
    """Of several types, of other sizes, beside a product, or where one waits for all of the other."""
    assert contents(compiled(program(APART[name]))).kernels == 2


@pytest.mark.parametrize("body", [*OF_ONE_TYPE.values(), *APART.values()])
def test_kernels_together_make_what_the_program_asks_for(body):
    """What a kernel leaves has its own values, whatever else it leaves."""
    small = program(body).replace("2048", "16").replace("1024", "8")
    module = parse_module(SourceText("text", small))
    draw = np.random.default_rng(0).standard_normal
    values = [draw(shape).astype(np.float32) for shape in [(16, 16)] * 4 + [(16,), ()]]
    given = execute(module, values)
    made = execute(module, values, schedule="compiled", chip="v5e")
    for one, other in zip(given, made, strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("results", "kernels"), [(101, 1), (120, 2)])
def test_a_kernel_leaves_a_hundred_results(results, kernels):
    """Of 120 products of one array libtpu makes kernels of 101 and 19 results."""
    body = ";".join(
        f"f32[] v{n} = constant({n}); f32[2048,2048] w{n} = broadcast(v{n}), dimensions={{}};"
        f"f32[2048,2048] multiply(x, w{n})"
        for n in range(2, results + 2)
    )
    assert contents(compiled(program(body))).kernels == kernels


def in_a_row(opcode: str, count: int, arguments: int, *, left: bool) -> str:
    """Return operations, each of the one before it and the next of some arguments; all are left, or the last one."""
    lines = [f"x{n} = f32[64,128] parameter({n})" for n in range(arguments)]
    lines += [f"y{n} = f32[64,128] {opcode}({f'y{n - 1}' if n else 'x0'}, x{n % arguments})" for n in range(count)]
    results = [f"y{n}" for n in (range(count) if left else [count - 1])]
    lines.append(f"ROOT r = ({', '.join(['f32[64,128]'] * len(results))}) tuple({', '.join(results)})")
    return "HloModule m\n\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"


@pytest.mark.parametrize(
    ("program", "kernels"),
    [
        (in_a_row("add", 150, 150, left=True), [(50, 50), (51, 50), (51, 50)]),
        (in_a_row("add", 250, 250, left=False), [(50, 1), (101, 1), (101, 1)]),
        (in_a_row("multiply", 300, 1, left=True), [(1, 100), (2, 100), (2, 100)]),
    ],
)
def test_a_kernel_reads_and_leaves_a_hundred_arrays(program, kernels):
    """The arrays that each kernel reads and leaves, as libtpu 0.0.52 has them for v5e."""
    made = [one for one in compiled(program).entry.instructions if one.opcode == "fusion"]
    assert [(len(one.operands), len(leaves(one.shape))) for one in made] == kernels


def test_numbers_that_a_kernel_takes_are_no_arrays():
    """The scalar core has them: of 120 arrays scaled by a number each libtpu makes one kernel that takes 120."""
    lines = [f"n{n} = f32[] parameter({n + 1})" for n in range(120)]
    for n in range(120):
        lines.append(f"b{n} = f32[64,128] broadcast(n{n}), dimensions={{}}")
        lines.append(f"y{n} = f32[64,128] multiply({f'y{n - 1}' if n else 'x'}, b{n})")
    text = "HloModule m\n\nENTRY e {\n  x = f32[64,128] parameter(0)\n  " + "\n  ".join(lines)
    module = compiled(f"{text}\n  ROOT r = f32[64,128] negate(y119)\n}}\n")
    assert contents(module).kernels == 1


def test_what_only_its_kernel_uses_is_not_left():
    """The product whose results go on is in registers alone."""
    entry = compiled(program(OF_ONE_TYPE["results of a product"])).entry
    (kernel,) = [one for one in entry.instructions if one.opcode == "fusion"]
    assert len(kernel.shape.elements) == 2


ROUND_ABOUT = f"""HloModule m

{SUM}
{LESS}

ENTRY e {{
  none = f32[] constant(0)
  y = f32[16,16] parameter(0)
  v = f32[16] parameter(1)
  early = f32[16,16] tanh(y)
  total = f32[16] reduce(early, none), dimensions={{0}}, to_apply=sum
  one = f32[16] add(v, total)
  other = f32[16] negate(v)
  sorted = f32[16] sort(other), dimensions={{0}}, to_apply=less
  spread = f32[16,16] broadcast(sorted), dimensions={{1}}
  late = f32[16,16] multiply(y, spread)
  ROOT out = (f32[16], f32[16,16], f32[16,16]) tuple(one, late, early)
}}
"""


def test_what_is_needed_through_another_pair_stays_apart():
    """``early`` and ``late`` are one kernel; ``one`` needs it, and it needs ``other``, which stands behind ``one``."""
    module = parse_module(SourceText("text", ROUND_ABOUT))
    draw = np.random.default_rng(0).standard_normal
    values = [draw(shape).astype(np.float32) for shape in [(16, 16), (16,)]]
    expected = execute(module, values, precision="exact")
    for one, other in zip(expected, execute(module, values, schedule="compiled", chip="v5e"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_stretches_that_meet_are_one():
    """A number leads to all of the stretch that it is in, and to itself alone between them."""
    spans = Spans()
    for low, high in [(2, 4), (10, 12), (7, 7), (4, 6), (20, 30), (11, 21)]:
        spans.add(low, high)
    assert [spans.of(n) for n in (1, 2, 5, 6, 7, 10, 25, 31)] == [
        (1, 1),
        (2, 6),
        (2, 6),
        (2, 6),
        (7, 7),
        (10, 30),
        (10, 30),
        (31, 31),
    ]
