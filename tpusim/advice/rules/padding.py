"""Arrays that are mostly padding, and products that multiply it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises, products_of
from tpusim.errors import TpusimError
from tpusim.ir.module import Module
from tpusim.pipeline.answers.layouts import least_padded_ps
from tpusim.program.edit import with_steps
from tpusim.program.steps import Kernel, Steps
from tpusim.program.work import Work
from tpusim.semantics.products import Product, canonical_product
from tpusim.shapes.address import logical_bytes, physical_bytes
from tpusim.shapes.shape import ArrayShape

_MOST_SIZES = 4
_MOST_ARRAYS = 3


class Size(NamedTuple):
    """A size of a dimension, what it is rounded up to, and the multiple that this is of."""

    size: int
    stored: int
    tile: int


class _Wasted:
    """What a size costs: arrays by name with the share of them that is used, and kernels that multiply its padding."""

    def __init__(self) -> None:
        self.used: dict[str, float] = {}
        self.multiplied: dict[str, float] = {}

    def touches(self, kernel: Kernel) -> bool:
        """Return whether a kernel moves or multiplies some of the padding."""
        return self.idle(kernel) > 0

    def idle(self, kernel: Kernel) -> float:
        """Return the largest part of what a kernel moves or multiplies that is padding."""
        used = [self.used.get(stream.operand, 1.0) for stream in kernel.streams]
        return 1 - min([*used, self.multiplied.get(kernel.name, 1.0)])


@advises("padding")
def padding(case: Case) -> Iterator[Trial]:
    """Propose sizes that fill tiles and arrays: blocks lose their padding, products its rows and columns."""
    kernels = [step for step in case.program.every_step if isinstance(step, Kernel)]
    found = _wasted(case)
    touched = _touched(kernels, found)
    # No more than that is saved: what a kernel does is padding to this part.
    shares = {size: sum(case.share(k) * found[size].idle(k) for k in own) for size, own in touched.items()}
    for size in sorted(shares, key=lambda size: -shares[size])[:_MOST_SIZES]:
        if shares[size] < LEAST_SHARE:
            return
        idle = max(map(found[size].idle, touched[size]))
        hint = _hint(case, found[size], touched[size]) if size.size < size.tile else ""
        yield Trial(
            what=f"dimensions of {size.size} take the room of {size.stored}: up to {idle:.0%} of it is padding",
            change=mended(size, hint),
            alternative=with_steps(case.program, partial(_full, wasted=found[size])),
            **case.places(touched[size]),
        )


def _touched(kernels: Sequence[Kernel], found: Mapping[Size, _Wasted]) -> dict[Size, list[Kernel]]:
    """Return for each size the kernels that move or multiply some of its padding."""
    # A program may have as many sizes as kernels.
    sizes: dict[str, list[Size]] = defaultdict(list)
    for size, wasted in found.items():
        for name in wasted.used.keys() | wasted.multiplied.keys():
            sizes[name].append(size)
    touched: dict[Size, list[Kernel]] = {size: [] for size in found}
    for kernel in kernels:
        names = (kernel.name, *(stream.operand for stream in kernel.streams))
        for size in {size for name in names if name in sizes for size in sizes[name]}:
            if found[size].touches(kernel):
                touched[size].append(kernel)
    return touched


def mended(size: Size, hint: str = "or {}") -> str:
    """Return the change that mends a size; the hint says what of putting another in its place."""
    below = size.size // size.tile * size.tile
    if below:
        return f"make them a multiple of {size.tile}: {below} costs what {size.size} should"
    turned = hint.format("put a larger dimension in their place (transpose)")
    return f"join them with the next one: {size.tile} fit; {turned}"


def _hint(case: Case, wasted: _Wasted, kernels: list[Kernel]) -> str:
    """Return whether to transpose the arrays of which most padding is moved: what their users then take."""
    idle: dict[str, float] = defaultdict(float)
    for stream in (stream for kernel in kernels for stream in kernel.streams if stream.operand in wasted.used):
        idle[stream.operand] += stream.total_bytes * (1 - wasted.used[stream.operand])
    times = {name: _turned(case, name) for name in sorted(idle, key=lambda name: -idle[name])[:_MOST_ARRAYS]}
    here_ps, least_ps = map(sum, zip((0, 0), *times.values(), strict=True))
    if not here_ps:
        return "or {}"
    verb = "or" if least_ps < (1 - LEAST_SHARE) * here_ps else "do not"
    arrays = ", ".join(name for name, (here, _) in times.items() if here)
    return f"{verb} {{}}: what uses {arrays} then takes {least_ps / here_ps:.2f} times as long"


def _turned(case: Case, array: str) -> tuple[int, int]:
    """Return what uses an array takes as it lies, and where it is padded least; nothing where that cannot be told."""
    try:
        return least_padded_ps(case.module, array, case.chip) if case.module else (0, 0)
    except TpusimError:
        # Nothing that can be compiled by itself uses it.
        return 0, 0


def _wasted(case: Case) -> dict[Size, _Wasted]:
    """Return what is wasted by the sizes that waste it."""
    found: dict[Size, _Wasted] = defaultdict(_Wasted)
    sizes: dict[str, Size] = {}
    for name, home in case.homes.items():
        shape = home[name].shape
        if isinstance(shape, ArrayShape) and (size := worst_stored(shape)):
            found[size].used[name] = logical_bytes(shape) / physical_bytes(shape)
            sizes[name] = size
    for step in case.program.every_step:
        if isinstance(step, Kernel) and case.module is not None and step.name in case.homes:
            share = _array_share(step, case.module, case)
            own = (
                _worst_multiplied(step, case.module, case)
                if step.family != "hand-written"
                else _read_by(step, found, sizes)
            )
            if share < 1 - LEAST_SHARE and own:
                found[own].multiplied[step.name] = share
    return found


def worst_stored(shape: ArrayShape) -> Size | None:
    """Return the dimension that pads an array most, None where little is padding."""
    layout = shape.actual_layout
    # Of no elements nothing is padding.
    if not layout.tiles or logical_bytes(shape) >= (1 - LEAST_SHARE) * physical_bytes(shape):
        return None
    sizes = (shape.dimensions[axis] for axis in layout.minor_to_major)
    return _worst([(size, tile) for size, tile in zip(sizes, reversed(layout.tiles[0]), strict=False) if size > 1])


def _read_by(kernel: Kernel, found: Mapping[Size, _Wasted], sizes: Mapping[str, Size]) -> Size | None:
    """Return the size that pads most of what a hand-written kernel reads, whose products say no sizes."""
    own = dict.fromkeys(sizes[stream.operand] for stream in kernel.streams if stream.operand in sizes)
    return max(own, key=lambda size: found[size].idle(kernel), default=None)


def _worst_multiplied(kernel: Kernel, module: Module, case: Case) -> Size | None:
    """Return the dimension that leaves most of an array idle in the products of a kernel."""
    sides = (case.chip.mxu.rows, case.chip.mxu.columns)
    found = _products(kernel, module, case)
    return _worst([pair for one in found for pair in zip((one.depth, one.columns), sides, strict=True)])


def _products(kernel: Kernel, module: Module, case: Case) -> Iterator[Product]:
    """Yield the products of a kernel whose operands are arrays."""
    home = case.homes[kernel.name]
    for computation, product in products_of(module, home, home[kernel.name]):
        operands = computation.operands_of(product)
        shapes = [one.shape for one in operands if isinstance(one.shape, ArrayShape)]
        if len(shapes) == len(operands):
            yield canonical_product(product, shapes)


def _worst(sizes: list[tuple[int, int]]) -> Size | None:
    found = [Size(size, -(-size // tile) * tile, tile) for size, tile in sizes if size]
    worst = min(found, key=lambda one: one.size / one.stored, default=None)
    return worst if worst is not None and worst.size < worst.stored else None


def _array_share(kernel: Kernel, module: Module, case: Case) -> float:
    """Return how much of what passes the arrays is no padding of a size: all that a product of its sizes does."""
    side = case.chip.mxu.rows * case.chip.mxu.columns
    passed = sum(m.streamed_rows for m in kernel.work.matmuls) * kernel.tiles * side
    # Padding of images that are cut stays, whatever sizes they have.
    done = kernel.product_flops + sum(one.padded_flops for one in _products(kernel, module, case))
    return min(1.0, done / 2 / passed) if passed else 1.0


def _full(steps: Steps, wasted: _Wasted) -> Steps:
    """Return steps without some padding."""
    return tuple(
        _without(step, wasted) if isinstance(step, Kernel) and wasted.touches(step) else step for step in steps
    )


def _without(kernel: Kernel, wasted: _Wasted) -> Kernel:
    share = wasted.multiplied.get(kernel.name, 1.0)
    # What makes an array without a product goes over its padding as well.
    whole = 1.0 if kernel.product_flops else wasted.used.get(kernel.name, 1.0)

    def less(stages: tuple[Work, ...]) -> tuple[Work, ...]:
        return tuple(Work(tuple(matmul * share for matmul in work.matmuls), work.ops) * whole for work in stages)

    return structs.replace(
        kernel,
        streams=tuple(
            structs.replace(stream, block_bytes=stream.block_bytes * wasted.used.get(stream.operand, 1.0))
            for stream in kernel.streams
        ),
        work=less((kernel.work,))[0],
        stages=less(kernel.stages),
        parts=tuple(structs.replace(part, stages=less(part.stages)) for part in kernel.parts),
        vector_loop=structs.replace(kernel.vector_loop, turns=kernel.vector_loop.turns * whole),
    )
