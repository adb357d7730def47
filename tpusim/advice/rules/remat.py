"""Products that are computed again although there would be room to keep them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises, are_made_of, products_of
from tpusim.cost.tile import alone_ps
from tpusim.hardware.units import HBM, VMEM, MemorySpace
from tpusim.ir.frames import is_differentiated, is_recomputed
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import PRODUCTS, VIEWS
from tpusim.program.edit import with_steps
from tpusim.program.module import walk
from tpusim.program.steps import AnyStep, Copy, Kernel, Steps, Wait
from tpusim.program.work import Stream, VectorLoop, Work
from tpusim.semantics.products import canonical_product
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape

_LEAST_SAVED = 1 / 3
"""Of the time of what is kept in stacks: in four scans that were compiled both ways these took up to a third more."""


class _Product(NamedTuple):
    """The products of a kernel: padded bytes of their results, and whether these are all that the kernel makes."""

    n_bytes: int
    is_batched: bool
    is_all: bool


class _Kept(NamedTuple):
    """What comes ``instead`` of products that are kept, and ``behind`` those that they are copies of, by identity."""

    instead: dict[int, Steps]
    behind: Mapping[int, Steps]


class _Pair(NamedTuple):
    """A product that is computed again, its ``twin`` before, and behind what its copy may ``start``.

    What was computed before in another form, cut up or with another product, is its own twin.
    """

    step: Kernel
    twin: Kernel
    start: Kernel | None


@advises("recomputation")
def recomputation(case: Case) -> Iterator[Trial]:
    """Propose to keep products that are computed again, where the HBM has room for them.

    They go out to HBM in the forward pass and come back where they were computed again. In a loop they go through a
    stack, out of which the core cuts them, and what is made of them is made again; elsewhere copies run beside the
    core. Of products in loops those with batch dimensions, for which JAX has a policy, are kept only where all of them
    can be and this pays.
    """
    kernels = [step for step in case.program.every_step if isinstance(step, Kernel)]
    again = [step for step in kernels if is_recomputed(step.name, step.op_name)]
    counts = {id(step): count for step, count in walk(case.program.steps)}
    in_loops = {id(step) for step in again if counts.get(id(step), 1) > 1}
    made = {id(step): one for step in kernels if step.product_flops and (one := _product(case, step)) is not None}
    products = [step for step in kernels if id(step) in made]
    pairs = list(_paired(products, set(map(id, again)), made, counts))
    alone = {id(step) for step in again if id(step) in made} - {id(pair.step) for pair in pairs}
    unpaired = [step for step in again if id(step) in alone & in_loops and made[id(step)].is_batched]
    policy = "dots_saveable"
    batched = [pair for pair in pairs if id(pair.step) in in_loops and made[id(pair.step)].is_batched]
    if unpaired or (batched and not _pays(batched, made, counts, case)):
        pairs, policy = [pair for pair in pairs if pair not in batched], "dots_with_no_batch_dims_saveable"
    found = [pair.step for pair in pairs]
    if _reads(case, unpaired, found):
        return
    kept_bytes = sum(made[id(step)].n_bytes * counts.get(id(step), 1) for step in found)
    if not in_loops:
        # Without jax.checkpoint the forward pass keeps what has no twin as well.
        kept_bytes += sum(made[number].n_bytes for number in alone)
    looped = [pair for pair in pairs if id(pair.step) in in_loops]
    if case.share(*found) < LEAST_SHARE or kept_bytes > case.room_bytes or not _pays(looped, made, counts, case):
        return
    kept = _kept(pairs, made, in_loops)
    stay = in_loops | _with_products(case, again, alone)
    gone: dict[int, Steps] = {id(step): () for step in again if id(step) not in stay}
    keep = f"give jax.checkpoint policy=jax.checkpoint_policies.{policy}"
    yield Trial(
        what=f"{len(found)} products are computed again that there is room to keep",
        change=keep if in_loops else "take jax.checkpoint away",
        alternative=with_steps(case.program, partial(_changed, kept=_Kept({**gone, **kept.instead}, kept.behind))),
        saved_bytes=-kept_bytes,
        **case.places(found),
    )


def _reads(case: Case, unpaired: Sequence[Kernel], found: Sequence[Kernel]) -> bool:
    """Return whether a batched product that the forward pass makes in another form is made of one that is kept.

    Kept in a stack it has one layout for both passes, and the forward pass takes the form of the backward pass: where
    attention read slices of one product, the scores and their softmax went from 3.1 to 9.2 ms (libtpu 0.0.52).
    """
    reading, kept = ({step.name for step in some} for some in (unpaired, found))
    homes = {id(home): home for step in unpaired if (home := case.homes.get(step.name))}
    return any(are_made_of(home, [(reading, kept)])[0] for home in homes.values())


def _pays(pairs: Sequence[_Pair], made: Mapping[int, _Product], counts: Mapping[int, int], case: Case) -> bool:
    """Return whether keeping products in stacks saves more of their time than is uncertain about it."""
    saved_ps = again_ps = 0
    for step, twin, _ in pairs:
        count = counts.get(id(step), 1)
        kept = (*_put(twin, step, made), *_got(step, twin, made))
        again_ps += count * alone_ps(step, case.chip)
        saved_ps += count * sum(alone_ps(one, case.chip) for one in (twin, step))
        saved_ps -= count * sum(alone_ps(one, case.chip) for one in kept)
    return saved_ps >= _LEAST_SAVED * again_ps


def _product(case: Case, step: Kernel) -> _Product | None:
    """Return what a kernel multiplies, None if it is hand-written; of a lowered program all that it makes."""
    one = case.instruction(step)
    if one is None or case.module is None:
        n_bytes = int(sum(stream.total_bytes for stream in step.streams if stream.is_output))
        return _Product(n_bytes, is_batched=False, is_all=True)
    home = case.homes[step.name]
    found = list(products_of(case.module, home, one))
    if not found:
        return None
    return _Product(
        n_bytes=sum(physical_bytes(product.shape) for _, product in found),
        is_batched=any(_is_batched(inner, product) for inner, product in found),
        is_all=_is_all(case.module, home, one),
    )


def _is_batched(home: Computation, product: Instruction) -> bool:
    operands = home.operands_of(product)
    shapes = [one.shape for one in operands if isinstance(one.shape, ArrayShape)]
    return len(shapes) == len(operands) and canonical_product(product, shapes).batch > 1


def _is_all(module: Module, home: Computation, one: Instruction) -> bool:
    """Return whether an instruction is a product, or a fusion that hands one on as it is."""
    while one.opcode not in PRODUCTS:
        if one.called_computations:
            home = module[one.called_computations[0]]
            one = home.root
        elif one.opcode in VIEWS:
            one = home.operands_of(one)[0]
        else:
            return False
    return True


def _kept(pairs: Sequence[_Pair], made: Mapping[int, _Product], in_loops: set[int]) -> _Kept:
    """Return the change that keeps what some of a program's products compute again."""
    behind, instead = defaultdict[int, Steps](tuple), dict[int, Steps]()
    for step, twin, start in pairs:
        n_bytes = made[id(step)].n_bytes
        if id(step) in in_loops and twin is step:
            # Whichever kernels made it before, all of it is written by them.
            instead[id(step)] = (_moved(step, made, is_written=True), *_got(step, twin, made))
        elif id(step) in in_loops:
            instead[id(twin)] = _put(twin, step, made)
            instead[id(step)] = _got(step, twin, made)
        elif start is None or twin is step:
            instead[id(step)] = ()
        else:
            out = Copy(
                name=f"{step.name}-out", opcode="copy-start", n_bytes=n_bytes, source_space=VMEM, target_space=HBM
            )
            back = Copy(name=f"{step.name}-in", opcode="copy-start", n_bytes=n_bytes, needs=(out.name,))
            behind[id(twin)] += (out,)
            behind[id(start)] += (back,)
            instead[id(step)] = (Wait(name=step.name, opcode="copy-done", needs=(back.name,)),)
    return _Kept(instead, behind)


def _paired(
    products: Sequence[Kernel], again: set[int], made: Mapping[int, _Product], counts: Mapping[int, int]
) -> Iterator[_Pair]:
    """Yield the products that are computed ``again``, by identity, in their order.

    What was not computed before, since only the backward pass reads it, is computed once, whatever it is called.
    """

    def key(one: Kernel) -> tuple[str, float, _Product]:
        # Two products of a line may be as large, one of them in batches.
        return one.source, one.product_flops, made[id(one)]._replace(is_all=True)

    left = defaultdict[tuple[str, float, _Product], list[Kernel]](list)
    for one in products:
        if id(one) not in again and not is_differentiated(one.op_name):
            left[key(one)].append(one)
    # The backward pass goes the other way.
    twins = {id(one): left[key(one)].pop() for one in products if id(one) in again and left[key(one)]}
    # A compiler may cut a product up, or make two of them in one kernel: operations of its line are left then.
    rest: dict[str, float] = defaultdict(float)
    for one in (one for some in left.values() for one in some):
        rest[one.source] += one.product_flops * counts.get(id(one), 1)
    start, is_behind = None, False
    for one in products:
        if id(one) in again:
            flops = one.product_flops * counts.get(id(one), 1)
            if id(one) not in twins and rest[one.source] >= flops:
                twins[id(one)] = one
                rest[one.source] -= flops
            if id(one) in twins:
                yield _Pair(one, twins[id(one)], start)
                is_behind = True
        elif is_behind:
            # Behind this one a copy does not hold up what is waited for first.
            start, is_behind = one, False


def _with_products(case: Case, again: Sequence[Kernel], alone: set[int]) -> set[int]:
    """Return which of some kernels, by identity, are products that nothing keeps, make what these read, or read them.

    Of a lowered program, which does not say what reads what, all stay if there are such products.
    """
    stay = set(alone)
    for home in {id(home): home for step in again if (home := case.homes.get(step.name))}.values():
        inside = [step for step in again if case.homes[step.name] is home]
        names = {step.name for step in inside if id(step) in alone}
        asked = [pair for step in inside for pair in ((names, {step.name}), ({step.name}, names))]
        found = are_made_of(home, asked)
        stay |= {id(step) for step, *is_with in zip(inside, found[::2], found[1::2], strict=True) if any(is_with)}
    return stay if case.homes or not alone else stay | set(map(id, again))


def _put(kernel: Kernel, other: Kernel, made: Mapping[int, _Product]) -> tuple[Kernel, ...]:
    """Return a kernel that writes its products into a stack as well; what else it makes of them is made behind it."""
    product = made[id(kernel)]
    stack = _stream(kernel, product, HBM, is_output=True)
    if product.is_all:
        return (structs.replace(kernel, streams=(*kernel.streams, stack)),)
    into = (stream for stream in kernel.streams if not stream.is_output)
    own = _stream(kernel, product, _space(kernel), is_output=True)
    bare = structs.replace(
        kernel,
        name=f"{kernel.name}-product",
        work=Work(kernel.work.matmuls),
        stages=(),
        vector_loop=VectorLoop(),
        streams=(*into, own, stack),
    )
    return bare, _rest(kernel, other, made)


def _got(kernel: Kernel, other: Kernel, made: Mapping[int, _Product]) -> tuple[Kernel, ...]:
    """Return a kernel that cuts the products of one out of a stack, and what makes of them what that one made."""
    cut = _moved(kernel, made, is_written=False)
    if made[id(kernel)].is_all:
        return (structs.replace(cut, name=kernel.name),)
    return cut, _rest(kernel, other, made)


def _moved(kernel: Kernel, made: Mapping[int, _Product], *, is_written: bool) -> Kernel:
    """Return a kernel that writes the products of one into a stack, or cuts them out of it."""
    product = made[id(kernel)]
    stack: MemorySpace = HBM
    spaces = (_space(kernel), stack) if is_written else (stack, _space(kernel))
    return Kernel(
        name=f"{kernel.name}-{'stack' if is_written else 'product'}",
        opcode="copy",
        needs=kernel.needs,
        tiles=kernel.tiles,
        streams=(_stream(kernel, product, spaces[0]), _stream(kernel, product, spaces[1], is_output=True)),
        family="copy",
    )


def _rest(kernel: Kernel, other: Kernel, made: Mapping[int, _Product]) -> Kernel:
    """Return a kernel that reads its products instead of computing them.

    What the ``other`` of a pair does, if that makes nothing of its products, is done to make them.
    """
    share = max(0.0, 1 - _operations(other) / max(1.0, _operations(kernel))) if made[id(other)].is_all else 1.0
    out = (stream for stream in kernel.streams if stream.is_output)
    return structs.replace(
        kernel,
        work=Work(ops=kernel.work.ops) * share,
        stages=(),
        vector_loop=structs.replace(kernel.vector_loop, turns=kernel.vector_loop.turns * share),
        streams=(_stream(kernel, made[id(kernel)], _space(kernel)), *out),
        product_flops=0.0,
    )


def _operations(kernel: Kernel) -> float:
    return sum(kernel.work.ops.values()) * kernel.tiles


def _space(kernel: Kernel) -> MemorySpace:
    """Return where most of what a kernel makes lies."""
    out = [stream for stream in kernel.streams if stream.is_output]
    return max(out, key=lambda stream: stream.total_bytes).space if out else HBM


def _stream(kernel: Kernel, made: _Product, space: MemorySpace, *, is_output: bool = False) -> Stream:
    """Return the way of a kernel's products into or out of a memory, tile by tile."""
    return Stream(f"{kernel.name}-product", space, made.n_bytes / kernel.tiles, kernel.tiles, is_output)


def _changed(steps: Steps, kept: _Kept) -> Steps:
    """Return steps where products are kept."""
    new: list[AnyStep] = []
    for step in steps:
        new += (*kept.instead.get(id(step), (step,)), *kept.behind.get(id(step), ()))
    return tuple(new)
