"""Behind places: what hand-written kernels take of VMEM for copies of their blocks and for scratch.

A block that the indices of the grid have a say in lies there twice, so that the next one comes in, or the last one goes
out, while a step computes; any other block once. Operands and results that lie in VMEM are used where they are. Scratch
that a step only fills and reads, outside of all conditions and loops, never is memory. What registers are spilled to,
and what a product needs beside its operands, no program states beforehand: a kernel may take more than is said here.

Source: 44 kernels of our own, compiled ahead of time for v5e: what 32 of them state, and 4 say as they are refused, to
the byte. Products, a softmax and scratch of which a part is read take up to 2.3 MiB more; up to 1 MiB less is taken
where an index is always 0 without saying so, and where a narrow operand was copied to VMEM. JAX documentation, Pallas:
Software Pipelining, and ``CompilerParams``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from tpusim.compiler.kernels.emitters import state
from tpusim.compiler.layouts.orders import laid_out
from tpusim.compiler.target import Target
from tpusim.draft import Draft, Node
from tpusim.errors import CapacityError, TpusimError
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import VMEM
from tpusim.ir.attributes import BackendConfig
from tpusim.ir.mosaic import DYNAMIC, Function, KernelBody, Type, Window, read_body
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.dtype import dtype
from tpusim.shapes.shape import ArrayShape, Shape, leaves

_MIB = 2**20
# No compiler has checked a body: it may be of another kind than its call says.
_NOT_KNOWN = (TpusimError, LookupError, TypeError, ValueError)


class Buffer(NamedTuple):
    """A block or scratch of a kernel, and how many of it lie in VMEM."""

    name: str
    kind: Type
    copies: int
    n_bytes: int

    def __str__(self) -> str:
        """Return a line for a list."""
        sizes = ",".join(map(str, self.kind.dimensions))
        what = f"{self.copies} x {self.kind.element}[{sizes}]"
        return f"{self.copies * self.n_bytes / _MIB:9.2f} MiB  {what}  ({self.name})"


def state_scoped(draft: Draft, target: Target) -> None:
    """State what every hand-written kernel takes of VMEM; raise CapacityError if that is more than one may take.

    That is what it asks for (``vmem_limit_bytes``), at most all of the memory, or what the chip's compiler gives it.
    """
    for graph in draft.running():
        for node in (node for node in graph.order() if "backend_config" in node.attributes):
            found = buffers_of(node.attributes, [operand.shape for operand in node.operands], node.shape, target.chip)
            if found:
                _state(node, found, target.chip)


def _state(node: Node, found: Sequence[Buffer], chip: Chip) -> None:
    asked = BackendConfig.decode(node.attributes["backend_config"]).scoped_vmem_limit_bytes
    limit, n_bytes = min(asked or chip.vmem.scoped_bytes, chip.vmem.capacity_bytes), scoped_bytes(found)
    if n_bytes > limit:
        raise _too_large(node, chip, found, limit)
    sizes = {"used_scoped_memory_configs": n_bytes} | ({"scoped_memory_configs": asked} if asked else {})
    state(node, {name: [{"memory_space": "1", "offset": "0", "size": str(size)}] for name, size in sizes.items()})


def scoped_bytes(found: Sequence[Buffer]) -> int:
    """Return what buffers take together."""
    return sum(buffer.copies * buffer.n_bytes for buffer in found)


def buffers_of(attributes: dict[str, Any], operands: Sequence[Shape], result: Shape, chip: Chip) -> list[Buffer]:
    """Return what a hand-written kernel takes of VMEM; nothing for anything else, and where its body is not known."""
    config = BackendConfig.decode(attributes.get("backend_config", ""))
    if not config.kernel_body or config.is_for_sparse_cores:
        return []
    try:
        body = read_body(config.kernel_body)
        return [*_blocks(body, operands, leaves(result), chip), *_scratch(body, chip)]
    except _NOT_KNOWN:
        return []


def _too_large(node: Node, chip: Chip, found: Sequence[Buffer], limit: int) -> CapacityError:
    largest = sorted(found, key=lambda buffer: buffer.copies * buffer.n_bytes, reverse=True)
    needed = scoped_bytes(found) / _MIB
    return CapacityError(
        "\n".join(
            (
                f"{node.name} on {chip.name}: its blocks and scratch take {needed:.2f} MiB of VMEM, and a kernel may "
                f"take {limit / _MIB:.2f} MiB of {chip.vmem.capacity_bytes / _MIB:.0f} MiB",
                *map(str, largest),
                "take smaller blocks, or ask for more (vmem_limit_bytes of pltpu.CompilerParams)",
            )
        )
    )


def _blocks(body: KernelBody, operands: Sequence[Shape], results: Sequence[ArrayShape], chip: Chip) -> Iterator[Buffer]:
    """Yield the blocks of arrays that do not lie in VMEM themselves."""
    scalars = body.prefetched + sum(bound == DYNAMIC for bound in body.grid)
    inputs = [array for operand in operands[scalars:] for array in leaves(operand)]
    arrays = [*inputs[: len(body.windows) - len(results)], *results]
    for at, (window, array) in enumerate(zip(body.windows, arrays, strict=True)):
        kind = body.main.argument_type(body.first_window + at)
        if kind.space == VMEM and space_of(array) != VMEM:
            yield Buffer(f"block of array {at}", kind, 2 if _moves(window, body) else 1, _bytes(kind, chip))


def _moves(window: Window, body: KernelBody) -> bool:
    """Return whether the indices of the grid have a say in which block is taken, and the next is fetched early."""
    transform = body.functions.get(window.transform)
    if transform is None or "synchronous" in window.pipeline_mode:
        return False
    indices = zip(transform.block.arguments, body.grid, strict=False)
    return bool(_made_of(transform, {number for number, size in indices if size != 1}))


def _made_of(transform: Function, numbers: set[int]) -> set[int]:
    """Return which of the results of a transform are made of some values."""
    operations = transform.block.operations
    for operation in operations:
        if numbers.intersection(operation.operands):
            numbers = numbers.union(operation.results)
    return numbers.intersection(operations[-1].operands)


def _scratch(body: KernelBody, chip: Chip) -> Iterator[Buffer]:
    """Yield the scratch that is memory."""
    arguments = body.main.block.arguments
    for number in arguments[len(arguments) - body.scratch :]:
        kind = body.main.types[number]
        if kind.space == VMEM and not _is_passing(body, number):
            yield Buffer("scratch", kind, 1, _bytes(kind, chip))


def _is_passing(body: KernelBody, number: int) -> bool:
    """Return whether scratch is only stored to and then loaded from, by the body itself."""
    block = body.main.block
    inner = (one for operation in block.operations for region in operation.regions for one in region.walk())
    if any(number in operation.operands for operation in inner):
        return False
    # JAX loads whatever it stores to, and mostly uses nothing of that.
    used = {value for operation in block.walk() for value in operation.operands}
    found = [one for one in block.operations if number in one.operands and (not one.results or used & {*one.results})]
    names = [operation.name for operation in found]
    return names[:1] != [_LOAD] and {*names} <= {_LOAD, _STORE}


_LOAD, _STORE = "vector.load", "tpu.vector_store"


def _bytes(kind: Type, chip: Chip) -> int:
    """Return the bytes of memory with the tiles that belong to it; booleans are words there."""
    bits = kind.element_bits
    array = ArrayShape(dtype(f"u{bits if bits > 1 else 32}"), kind.dimensions)
    return physical_bytes(laid_out(array, tuple(reversed(range(array.rank))), chip)) if prod(kind.dimensions) else 0
