"""Placement in fast memory: never more than there is, the same everywhere, and what saves most comes first."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.ir.ops import VIEWS
from tpusim.pipeline.stages import check, load
from tpusim.semantics.aliasing import in_place_operands
from tpusim.semantics.infer.control import branches
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import TupleShape, leaves
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

FOLDER = Path(__file__).parents[1] / "data" / "numeric"
FILES = sorted(path for path in FOLDER.glob("*.hlo.txt.gz") if ".v5e." not in path.name)
KIB = 1024
FAST = (1, 3)


def target_with(fast_bytes, chip="v5e"):
    """Return a chip that leaves so many bytes of VMEM to whole arrays."""
    scoped = load_chip(chip).vmem.scoped_bytes
    return Target(load_chip(chip, {"vmem.capacity_bytes": scoped + fast_bytes}), narrows=False)


def compiled(text, fast_bytes=1 << 20):
    """Return what a program's text becomes."""
    module = compile_module(parse_module(SourceText("test", text)), target_with(fast_bytes))
    assert check(module) == []
    return module


class Played:
    """The naive twin of lives: a module run by hand, each loop twice, with a number for every array in fast memory."""

    def __init__(self, module):
        self.module, self.now = module, 0
        self.born, self.died, self.sizes = {}, {}, {}
        # Arguments lie in HBM: nothing is noted of them.
        self.run(module.entry, [self.none(p.shape) for p in module.entry.parameters])

    def none(self, shape):
        """Return a value of whose arrays nothing is noted."""
        return [self.none(element) for element in shape.elements] if isinstance(shape, TupleShape) else None

    def new(self, shape):
        """Return numbers for the arrays of a new value."""
        if isinstance(shape, TupleShape):
            return [self.new(element) for element in shape.elements]
        if shape.memory_space not in FAST:
            return None
        number = len(self.born)
        self.born[number] = self.died[number] = self.now
        self.sizes[number] = physical_bytes(shape)
        return number

    def use(self, value):
        """Note that a value is read now."""
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, list):
                self.use(part)
            elif part is not None:
                self.died[part] = self.now

    def run(self, computation, arguments):
        """Return the result of a computation."""
        values = {}
        for instruction in computation.instructions:
            self.now += 1
            operands = [values[name] for name in instruction.operands]
            if instruction.opcode == "parameter":
                values[instruction.name] = arguments[instruction.immediate]
            else:
                values[instruction.name] = self.made(instruction, operands)
        self.use(values[computation.root_name])
        return values[computation.root_name]

    def made(self, instruction, operands):
        """Return the value of an instruction."""
        if instruction.opcode in VIEWS:
            return operands[0]
        if instruction.opcode in ("tuple", "get-tuple-element"):
            return operands[0][instruction.attributes["index"]] if instruction.opcode != "tuple" else operands
        if instruction.opcode == "while":
            return self.looped(instruction, operands[0])
        self.use(operands)
        if instruction.opcode == "copy-done":
            return operands[0][0]
        if instruction.opcode == "conditional":
            names = branches(instruction.attributes)
            results = [self.run(self.module[n], [o]) for n, o in zip(names, operands[1:], strict=True)]
            return results[0]
        result = self.new(instruction.shape)
        for number, operand in in_place_operands(self.module, instruction).items():
            # What is written over another array takes no room of its own.
            self.sizes.pop(result[number] if isinstance(result, list) else result, None)
            if isinstance(result, list):
                result[number] = operands[operand]
            else:
                result = operands[operand]
        return result

    def looped(self, instruction, state):
        """Return the state after two trips."""
        for _ in range(2):
            self.run(self.module[instruction.attributes["condition"]], [state])
            # All that a loop carries is there as each trip begins.
            self.use(state)
            state = self.run(self.module[instruction.attributes["body"]], [state])
        return state

    def peak_bytes(self):
        """Return the most bytes alive at once; what ends as another begins may hand its place over."""
        changes = defaultdict(int)
        for number, size in self.sizes.items():
            changes[self.born[number]] += size
            changes[self.died[number] + 1] -= size
        alive = peak = 0
        for position in sorted(changes):
            alive += changes[position]
            peak = max(peak, alive)
        return peak


@pytest.mark.parametrize("fast_kib", [16, 256, 1 << 14])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".hlo.txt.gz"))
def test_never_more_than_there_is(path, fast_kib):
    """Counted by hand, over programs of all kinds; and what they update in place lies where it did."""
    module = compile_module(load(path), target_with(fast_kib * KIB))
    assert check(module) == []
    assert Played(module).peak_bytes() <= fast_kib * KIB
    for computation in module.computations:
        for instruction in computation.instructions:
            results = leaves(instruction.shape)
            for number, operand in in_place_operands(module, instruction).items():
                shape = computation[instruction.operands[operand]].shape
                assert results[number].memory_space == shape.memory_space


CHAIN = """HloModule chain
ENTRY main {
  x = f32[64,128] parameter(0)
  w = f32[128,128] parameter(1)
  a = f32[64,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[64,128] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}
  ROOT c = f32[64,128] dot(b, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def spaces(module, opcode=""):
    """Return the memory space of each array that the entry makes, by its name; copies are left out."""
    found = [i for i in module.entry.instructions if not opcode or i.opcode == opcode]
    return {i.name: i.shape.memory_space for i in found if i.opcode not in ("tuple", "copy-start", "copy-done")}


def test_what_kernels_hand_on_is_in_fast_memory_and_what_the_host_sees_is_not():
    """Arguments come and results go by way of HBM."""
    assert spaces(compiled(CHAIN)) == {"x": 0, "w": 0, "a": 1, "b": 1, "c": 0}


TWO_KINDS = """HloModule kinds
ENTRY main {
  x = f32[256,256] parameter(0)
  a = f32[256,256] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[256,256] reverse(a), dimensions={0}
  u = f32[256,256] sine(t)
  s = f32[256,256] cosine(u)
  b = f32[256,256] dot(s, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[256,256] dot(s, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT both = (f32[256,256], f32[256,256]) tuple(b, c)
}
"""


def test_products_of_two_cores_go_to_memory_that_both_see():
    """Each core makes its part of a product; only plain loops leave arrays in the memories of the cores."""
    module = parse_module(SourceText("test", TWO_KINDS))
    one, two = (compile_module(module, target_with(1 << 20, chip)) for chip in ("v5e", "v5p"))
    assert (spaces(one)["a"], spaces(two)["a"]) == (1, 0)
    assert sum(spaces(two).values()) == 1


def test_room_for_one_array_is_given_away_again_and_again():
    """``b`` is made while ``a`` is read: room for one is not enough for both, room for two beside the weights is."""
    assert sum(spaces(compiled(CHAIN, 32 * KIB), "dot").values()) == 1
    assert sum(spaces(compiled(CHAIN, 128 * KIB), "dot").values()) == 2


def test_no_fast_memory_changes_nothing():
    """VMEM that kernels take whole for their blocks holds no arrays."""
    module = parse_module(SourceText("test", CHAIN))
    assert compile_module(module, target_with(0)).text == compile_module(module, target_with(1 << 20), "order").text


def test_what_is_read_more_often_comes_first():
    """Of two arrays of one size, with room for one beside the weights."""
    text = """HloModule two
ENTRY main {
  x = f32[64,128] parameter(0)
  w = f32[128,128] parameter(1)
  rare = f32[64,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  often = f32[64,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, HIGHEST
  p = f32[128,128] dot(often, often), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  q = f32[64,64] dot(often, rare), lhs_contracting_dims={1}, rhs_contracting_dims={1}, HIGHEST
  ROOT both = (f32[128,128], f32[64,64]) tuple(p, q)
}
"""
    text = text.replace("HIGHEST", "operand_precision={highest,highest}")
    found = spaces(compiled(text, 96 * KIB), "dot")
    assert (found["rare"], found["often"]) == (0, 1)


SORT_AND_SOLVE = """HloModule s
less {
  l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT c = pred[] compare(l, r), direction=LT
}
ENTRY main {
  x = f32[64,128] parameter(0)
  w = f32[128,128] parameter(1)
  a = f32[64,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[64,128] sort(a), dimensions={0}, to_apply=less
  b = f32[64,128] dot(s, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64,64] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  g = f32[64,64] custom-call(c), custom_call_target="Solved"
  ROOT d = f32[64,64] tanh(g)
}
"""


def test_what_sorts_and_what_solves_takes_from_fast_memory():
    """As the TPU compiler has it: keys, and blocks of a factorisation."""
    entry = compiled(SORT_AND_SOLVE).entry
    (solved,) = entry.by_name["g"].operands
    (keys,) = entry.by_name["s"].operands
    assert [entry[name].shape.memory_space for name in (solved, keys)] == [1, 1]


RECURRENT = """HloModule recurrent
condition {
  s = (s32[], f32[8,512], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(100)
  ROOT go = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[8,512], f32[512,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[8,512] get-tuple-element(s), index=1
  w = f32[512,512] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  new = f32[8,512] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[8,512], f32[512,512]) tuple(next, new, w)
}
ENTRY main {
  x = f32[8,512] parameter(0)
  w = f32[512,512] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[8,512], f32[512,512]) tuple(zero, x, w)
  loop = (s32[], f32[8,512], f32[512,512]) while(t), condition=condition, body=body
  ROOT y = f32[8,512] get-tuple-element(loop), index=1
}
"""


def after_a_sum(rows):
    """Return the loop with a first state that is the sum of so many, 16 KiB each; the weights are 1 MiB."""
    adds = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    many = f"many = f32[{rows},8,512] parameter(0)\n  none = f32[] constant(0)\n"
    summed = many + "  x = f32[8,512] reduce(many, none), dimensions={0}, to_apply=add"
    return RECURRENT.replace("condition {", adds + "condition {", 1).replace("x = f32[8,512] parameter(0)", summed)


def test_what_a_loop_reads_in_every_trip_is_brought_in_before_it():
    """State and weights: in what goes in, in body and condition, in what comes out; argument and result stay in HBM."""
    module = compiled(after_a_sum(256), 2 << 20)
    loop = next(i for i in module.entry.instructions if i.opcode == "while")
    carried = [loop.shape, module.entry[loop.operands[0]].shape]
    carried += [module[loop.attributes[name]].parameters[0].shape for name in ("body", "condition")]
    carried.append(module[loop.attributes["body"]].root.shape)
    assert [[leaf.memory_space for leaf in leaves(shape)] for shape in carried] == [[0, 1, 1]] * 5
    assert all(parameter.shape.memory_space == 0 for parameter in module.entry.parameters)
    assert module.entry.root.shape.memory_space == 0


@pytest.mark.parametrize(("rows", "is_fast"), [(0, False), (48, False), (64, True), (4096, True)])
@pytest.mark.parametrize("trips", [2, 100])
def test_what_a_loop_only_reads_comes_in_beside_kernels_or_not_at_all(rows, is_fast, trips):
    """As libtpu 0.0.52 has it for v5e: those before the loop have to read as many bytes; no copy is waited for."""
    text = (after_a_sum(rows) if rows else RECURRENT).replace("constant(100)", f"constant({trips})")
    module = compiled(text, 2 << 20)
    loop = next(i for i in module.entry.instructions if i.opcode == "while")
    assert leaves(loop.shape)[2].memory_space == is_fast


SECOND = """  v = f32[512,512] parameter(2)
  t2 = (s32[], f32[8,512], f32[512,512]) tuple(zero, y, v)
  loop2 = (s32[], f32[8,512], f32[512,512]) while(t2), condition=condition, body=body
  ROOT z = f32[8,512] get-tuple-element(loop2), index=1
}
"""


@pytest.mark.parametrize(("first", "fast"), [(RECURRENT, [0, 0]), (after_a_sum(64), [1, 0])])
def test_a_loop_hides_no_copy_for_the_next_one(first, fast):
    """As libtpu 0.0.52 has it for v5e; nor does a kernel hide two copies that each take all of its time."""
    text = first.replace("  ROOT y =", "  y =").rstrip().removesuffix("}") + SECOND
    loops = [i for i in compiled(text, 4 << 20).entry.instructions if i.opcode == "while"]
    assert [leaves(loop.shape)[2].memory_space for loop in loops] == fast


def copied(module):
    """Return what is copied, in whatever way."""
    copies = [i for i in module.entry.instructions if i.opcode in ("copy", "copy-start")]
    return [copy.operands[0] for copy in copies]


def test_without_room_for_it_a_loop_reads_where_it_did():
    """And no copy is left but that of the state, since the argument is the caller's."""
    assert copied(compiled(RECURRENT, 4 * KIB)) == ["x"]


def test_weights_of_a_loop_of_one_trip_gain_nothing_by_a_copy():
    """They are read once either way, where the front end wants it to be a loop still."""
    once = RECURRENT.replace("constant(100)", "constant(1)")
    kept = 'body=body, frontend_attributes={skip-simplify-while-loops_trip-count-one="true"}'
    module = compiled(once.replace("body=body", kept), 2 << 20)
    assert "while" in [i.opcode for i in module.entry]
    assert "w.1" in module.entry.by_name
    assert "w.1" not in copied(module)


def test_a_small_array_that_every_trip_waits_for_is_brought_in():
    """Its bytes are few, but each trip would wait for the first of them, the longer the faster HBM is beside it."""
    state = "s32[], f32[8,512], f32[512,512]"
    text = after_a_sum(256).replace(state, state + ", f32[8,512]")
    text = text.replace("tuple(next, new, w)", "tuple(next, sum, w, b)")
    text = text.replace(
        "  ROOT t", "  b = f32[8,512] get-tuple-element(s), index=3\n  sum = f32[8,512] add(new, b)\n  ROOT t"
    )
    text = text.replace("tuple(zero, x, w)", "tuple(zero, x, w, small)")
    text = text.replace("  zero =", "  small = f32[8,512] parameter(2)\n  zero =")
    module = parse_module(SourceText("test", text))
    for factor in (1, 8):
        rate = load_chip("v5e").hbm.bandwidth_bytes_per_second * factor
        target = Target(load_chip("v5e", {"hbm.bandwidth_bytes_per_second": rate}), narrows=False)
        loop = next(i for i in compile_module(module, target).entry.instructions if i.opcode == "while")
        assert [leaf.memory_space for leaf in leaves(loop.shape)] == [0, 1, 1, 1]


def test_a_stack_of_which_each_trip_reads_a_part_stays_where_it_is():
    """All of it is read once in either case, and a kernel fetches its part beside its work."""
    stack = "f32[100,512,512]"
    text = RECURRENT.replace("512], f32[512,512]", "512], " + stack).replace("w = f32[512,512]", "w = " + stack)
    part = "  o = s32[] constant(0)\n  p = f32[1,512,512] dynamic-slice(w, i, o, o), dynamic_slice_sizes={1,512,512}\n"
    text = text.replace("  new =", part + "  v = f32[512,512] reshape(p)\n  new =").replace("dot(h, w)", "dot(h, v)")
    module = compiled(text, 256 << 20)
    loop = next(i for i in module.entry.instructions if i.opcode == "while")
    assert [leaf.memory_space for leaf in leaves(loop.shape)] == [0, 1, 0]


ONE_OR_TWO = """HloModule one_or_two
ENTRY main {
  p = f32[512,256] parameter(0)
  q = f32[256,256] parameter(1)
  r = f32[256,256] parameter(2)
  a = f32[512,256] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[256,256] dot(q, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[256,256] dot(r, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[512,256] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[512,256] dot(a, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  f = f32[256,256] dot(b, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[256,256] dot(c, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT all = (f32[512,256], f32[512,256], f32[256,256], f32[256,256]) tuple(d, e, f, g)
}
"""


def test_one_large_array_does_not_shut_out_two_small_ones_that_save_more():
    """It is moved three times and they four times each: in a smaller memory they alone would be."""
    vmem = {"vmem.scoped_bytes": 64 << 10, "vmem.capacity_bytes": (600 + 64) << 10}
    module = compile_module(parse_module(SourceText("test", ONE_OR_TWO)), Target(load_chip("v5e", vmem), narrows=False))
    found = spaces(module)
    assert [found[name] for name in "abc"] == [0, 1, 1]


def chain(length):
    """Return a program whose first array is read at once and at the end, of others that each three kernels read."""
    lines = [f"c{i + 3} = f32[512,512] add(d{i}, c{i})" for i in range(length)]
    named = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    dots = [f"d{i} = f32[512,512] dot(c{i + 2}, c{i + 1}), {named}" for i in range(length)]
    steps = "\n".join(f"  {dot}\n  {line}" for dot, line in zip(dots, lines, strict=True))
    makers = ["a", *(f"e{i}" for i in range(6)), "c0", "c1", "c2"]
    first = "\n".join(f"  {new} = f32[512,512] dot({old}, p2), {named}" for old, new in pairwise(makers))
    return f"""HloModule chain
ENTRY main {{
  p0 = f32[512,512] parameter(0)
  p1 = f32[512,512] parameter(1)
  p2 = f32[512,512] parameter(2)
  a = f32[512,512] dot(p0, p1), {named}
{first}
{steps}
  ROOT out = f32[512,512] dot(c{length + 2}, a), {named}
}}
"""


def test_what_is_not_read_for_long_leaves_fast_memory_for_others():
    """Beside the kernels that read it first; the last one reads it from HBM, or from where it comes back to."""
    module = compiled(chain(40), 9 << 19)
    starts = [i for i in module.entry if i.opcode == "copy-start" and i.operands == ("a",)]
    assert module.entry["a"].shape.memory_space == 1
    assert [i.shape.elements[0].memory_space for i in starts] == [0]
    (start,) = (i for i in compiled(chain(40), 9 << 20).entry if i.opcode == "copy-start")
    assert start.attributes["cross_program_prefetch_index"] == 0


POOLED = """
HloModule m
ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY e {
  p = f32[8,64,64,128] parameter(0)
  q = f32[8,32,32,128] parameter(1)
  x = f32[8,64,64,128] tanh(p)
  y = f32[8,32,32,128] tanh(q)
  zero = f32[] constant(0)
  s = f32[8,64,64,128] select-and-scatter(x, y, zero), window={size=1x2x2x1 stride=1x2x2x1}, select=ge, scatter=add
  ROOT z = f32[8,64,64,128] tanh(s)
}
"""


def test_what_scatters_to_windows_takes_from_fast_memory_and_leaves_there():
    """As the TPU compiler has it in the gradients of pools."""
    found = spaces(compiled(POOLED, 128 << 20))
    assert [found[name] for name in ("x", "y", "s", "z")] == [1, 1, 1, 0]


CARRIED = """HloModule m{header}

more {{
  p = (s32[], f32[512,1024]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  most = s32[] constant(64)
  ROOT m = pred[] compare(n, most), direction=LT
}}

body {{
  p = (s32[], f32[512,1024]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  x = f32[512,1024] get-tuple-element(p), index=1
  y = f32[512,1024] {made}
  ROOT r = (s32[], f32[512,1024]) tuple(next, y)
}}

ENTRY e {{
  x = f32[512,1024] parameter(0)
  zero = s32[] constant(0)
  before = f32[512,1024] add(x, x)
  s = (s32[], f32[512,1024]) tuple(zero, {first})
  w = (s32[], f32[512,1024]) while(s), condition=more, body=body
  y = f32[512,1024] get-tuple-element(w), index=1
  after = f32[512,1024] add(y, y)
  ROOT r = f32[512,1024] {result}
}}
"""
DONATED = ", input_output_alias={ {}: (0, {}, may-alias) }"


@pytest.mark.parametrize("made", ["negate(x)", "tanh(x)"])
@pytest.mark.parametrize(
    ("header", "first", "result", "is_fast"),
    [
        ("", "x", "copy(y)", True),
        (DONATED, "x", "copy(y)", False),
        (DONATED, "before", "copy(y)", False),
        (DONATED, "before", "negate(after)", True),
        (", buffer_donor={ (0, {}) }", "x", "negate(after)", True),
    ],
)
def test_a_loop_that_runs_in_place_of_an_argument_stays_in_hbm(header, first, result, is_fast, made):
    """As libtpu 0.0.52 has it for v5e: in place of what is given away, or of the result that lies there."""
    module = compiled(CARRIED.format(header=header, first=first, result=result, made=made), 32 << 20)
    (loop,) = (instruction for instruction in module.entry if instruction.opcode == "while")
    assert (loop.shape.elements[1].memory_space in FAST) == is_fast
