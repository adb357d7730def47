"""Naive twin of the demand analysis: each element of a value carries the set of operand elements that it is made of."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tpusim.semantics.demand.inlining import inline
from tpusim.semantics.demand.needs import demand_of
from tpusim.source import SourceText
from tpusim.text import parse_module

NONE = frozenset()
SUM = "%sum (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
SUM += "  ROOT %c = f32[] add(%a, %b)\n}\n"


class Chain:
    """Lines of a computation of one operand, and of its latest value the elements of the operand it is made of."""

    def __init__(self, shape):
        count = int(np.prod(shape))
        self.shape = shape
        self.lines = [f"%v0 = {text(shape)} parameter(0)", "%zero = f32[] constant(0)", "%i = s32[] parameter(1)"]
        self.value = np.array([frozenset([n]) for n in range(count)] + [None])[:-1].reshape(shape)
        self.earlier = []
        self.number = 0

    @property
    def name(self):
        """The latest value's name."""
        return f"%v{self.number}"

    def add(self, opcode, value, attributes="", others=""):
        """Append an instruction that takes the latest value, and give what its elements are made of."""
        self.earlier.append((self.name, self.value))
        line = f"{text(value.shape)} {opcode}({self.name}{others}){attributes}"
        self.number += 1
        self.lines.append(f"{self.name} = {line}")
        self.value = value

    def elements(self):
        """Return the elements of the operand that the latest value is made of."""
        return frozenset().union(*self.value.ravel())

    def demanded(self, nested=False):
        """Return the region and the shape of the operand that the analysis gives."""
        module = parse_module(SourceText("chain.hlo", self.text(nested)))
        body = inline(module, module.entry, module.entry.root)
        (region,) = demand_of(body).operands[0]
        return region, body.operands[0].shape

    def text(self, nested):
        """Return the module whose entry calls the chain as a fusion, one fusion deeper if that is asked for."""
        lines = (
            [*self.lines[:-1], f"ROOT {self.lines[-1]}"] if self.number else ["ROOT " + self.lines[0], *self.lines[1:]]
        )
        parameters = f"(v0: {text(self.shape)}, i: s32[]) -> {text(self.value.shape)}"
        taken = f"%x = {text(self.shape)} parameter(0)\n%n = s32[] parameter(1)\n"
        call = f"ROOT %y = {text(self.value.shape)} fusion(%x, %n), kind=kLoop, calls=%f"
        inner = f"%f {parameters} {{\n" + "\n".join(lines) + "\n}\n"
        outer = f"%g {parameters.replace('v0', 'x').replace('i:', 'n:')} {{\n{taken}{call}\n}}\n" if nested else ""
        entry = f"ENTRY %e {{\n{taken}{call.replace('%f', '%g') if nested else call}\n}}\n"
        return f"HloModule m, is_scheduled=true\n\n{SUM}\n{inner}\n{outer}\n{entry}"


def text(shape):
    """Return the notation of an f32 array."""
    return f"f32[{','.join(map(str, shape))}]"


def cut(chain, draw):
    """Draw a strided slice."""
    cuts = []
    for size in chain.value.shape:
        start = draw(st.integers(0, size - 1))
        cuts.append((start, draw(st.integers(start + 1, size)), draw(st.integers(1, 3))))
    value = chain.value[tuple(slice(*c) for c in cuts)]
    chain.add("slice", value, f", slice={{{', '.join(f'[{a}:{b}:{c}]' for a, b, c in cuts)}}}")


def pad(chain, draw):
    """Draw padding on both sides, negative too, and between elements."""
    edges = [(draw(st.integers(-1, 2)), draw(st.integers(-1, 2)), draw(st.integers(0, 2))) for _ in chain.value.shape]
    value = chain.value
    for d, (low, high, interior) in enumerate(edges):
        size = value.shape[d] + (value.shape[d] - 1) * interior
        # Room for the margins, from which negative ones then cut.
        wide = np.full([*value.shape[:d], size + 4, *value.shape[d + 1 :]], NONE)
        wide[(slice(None),) * d + (slice(2, 2 + size, interior + 1),)] = value
        value = wide[(slice(None),) * d + (slice(2 - low, 2 + size + high),)]
    if value.size:
        chain.add("pad", value, f", padding={'x'.join(f'{a}_{b}_{c}' for a, b, c in edges)}", ", %zero")


def turn(chain, draw):
    """Draw a transposition."""
    order = draw(st.permutations(range(chain.value.ndim)))
    chain.add("transpose", chain.value.transpose(order), f", dimensions={{{','.join(map(str, order))}}}")


def mirror(chain, draw):
    """Draw a reversal of one dimension."""
    d = draw(st.integers(0, chain.value.ndim - 1))
    chain.add("reverse", np.flip(chain.value, d), f", dimensions={{{d}}}")


def spread(chain, draw):
    """Draw a broadcast along a dimension that comes first or last."""
    size, first = draw(st.integers(1, 3)), draw(st.booleans())
    value = np.repeat(np.expand_dims(chain.value, 0 if first else -1), size, 0 if first else -1)
    kept = range(1, value.ndim) if first else range(value.ndim - 1)
    chain.add("broadcast", value, f", dimensions={{{','.join(map(str, kept))}}}")


def join(chain, draw):
    """Draw a concatenation with an earlier value that fits, or with itself."""
    d = draw(st.integers(0, chain.value.ndim - 1))
    others = [(chain.name, chain.value)]
    for name, value in chain.earlier:
        same = value.ndim == chain.value.ndim and all(
            value.shape[k] == chain.value.shape[k] for k in range(value.ndim) if k != d
        )
        others += [(name, value)] if same else []
    name, other = draw(st.sampled_from(others))
    chain.add("concatenate", np.concatenate([chain.value, other], d), f", dimensions={{{d}}}", f", {name}")


def negate(chain, draw):
    """An element-wise operation."""
    chain.add("negate", chain.value)


def add(chain, draw):
    """Draw an addition of an earlier value of the same shape."""
    fitting = [pair for pair in chain.earlier if pair[1].shape == chain.value.shape]
    if fitting:
        name, other = draw(st.sampled_from(fitting))
        union = np.frompyfunc(lambda first, second: first | second, 2, 1)
        chain.add("add", union(chain.value, other), "", f", {name}")


def fold(chain, draw):
    """Draw a reduction of one dimension."""
    if chain.value.ndim > 1:
        d = draw(st.integers(0, chain.value.ndim - 1))
        value = np.frompyfunc(lambda first, second: first | second, 2, 1).reduce(chain.value, d)
        chain.add("reduce", value, f", dimensions={{{d}}}, to_apply=%sum", ", %zero")


def reshape(chain, draw):
    """Draw a reshape that joins all dimensions or splits the last one."""
    shape = chain.value.shape
    halves = [(*shape[:-1], shape[-1] // 2, 2)] if shape[-1] % 2 == 0 else []
    chain.add("reshape", chain.value.reshape(draw(st.sampled_from([(chain.value.size,), *halves]))))


def cut_somewhere(chain, draw):
    """Draw a dynamic slice along one dimension."""
    d = draw(st.integers(0, chain.value.ndim - 1))
    size = draw(st.integers(1, chain.value.shape[d]))
    start = draw(st.integers(0, chain.value.shape[d] - size))
    value = chain.value[(slice(None),) * d + (slice(start, start + size),)]
    sizes = f", dynamic_slice_sizes={{{','.join(map(str, value.shape))}}}"
    chain.add("dynamic-slice", value, sizes, ", %i" * value.ndim)


def slide(chain, draw):
    """Draw a reduction over windows along one dimension."""
    d = draw(st.integers(0, chain.value.ndim - 1))
    size, stride = draw(st.integers(1, min(3, chain.value.shape[d]))), draw(st.integers(1, 2))
    rows = np.moveaxis(chain.value, d, 0)
    starts = range(0, rows.shape[0] - size + 1, stride)
    union = np.frompyfunc(lambda first, second: first | second, 2, 1)
    value = np.moveaxis(np.array([union.reduce(rows[n : n + size], 0) for n in starts], dtype=object), 0, d)
    sizes, strides = ["1"] * value.ndim, ["1"] * value.ndim
    sizes[d], strides[d] = str(size), str(stride)
    window = f", window={{size={'x'.join(sizes)} stride={'x'.join(strides)}}}, to_apply=%sum"
    chain.add("reduce-window", value, window, ", %zero")


EXACT = (cut, pad, turn, mirror, spread, join, negate)
ALL = (*EXACT, add, fold, reshape, cut_somewhere, slide)


@st.composite
def chains(draw, steps, longest):
    """Draw a computation of up to ``longest`` of some steps, of small arrays."""
    chain = Chain(tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(1, longest))):
        if chain.value.size < 400 and chain.value.ndim < 5:
            draw(st.sampled_from(steps))(chain, draw)
    return chain
