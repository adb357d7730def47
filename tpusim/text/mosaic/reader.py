"""The body of a Pallas kernel, read by MLIR itself as jaxlib brings it.

The body is MLIR in base64. JAX writes bytecode, of a dialect whose versions Mosaic keeps apart (``stable_mosaic``): all
of its operations are read as they stand, whether known or not, so that a kernel of a newer JAX is read as well. The
TPU compiler writes the kernels that it makes itself, ``online-softmax`` for one, as text of the dialects themselves,
each of which has a syntax of its own and so must be known.
"""

from __future__ import annotations

import importlib
import re
from operator import index
from typing import Any

from tpusim.apart import read_apart
from tpusim.errors import ProgramError
from tpusim.hardware.units import SMEM, VMEM
from tpusim.ir.mosaic import Block, Function, KernelBody, Operation, Type, Unreadable, Window, reads_bodies
from tpusim.limits import bounded

_DIALECT = "stable_mosaic."
_BYTECODE = b"ML\xefR"
# How MLIR writes a byte that is no ASCII.
_ESCAPED = rb"\\([0-9A-F]{2})"
# A place within names and calls, the innermost first: ``"get"("f"("kernels.py":12:4 to :28))``.
_PLACE = r'"([^"]+)":(\d+):\d+'
_MOST_ELEMENTS = 1 << 16
"""Elements up to which a constant that is not all one value is kept."""


@reads_bodies
def read_kernel(encoded: str) -> KernelBody:
    """Return the kernel of a ``body``; raise ``Unreadable`` without jaxlib, and for what is no kernel."""
    # Most programs have none.
    import base64
    import binascii

    try:
        # Here and not in the process that reads, so that it need not load what this one keeps.
        for name in ("jaxlib.mlir", "jaxlib.mlir._mlir_libs._tpu_ext", "jaxlib.mlir._mlir_libs._jax_mlir_ext"):
            importlib.import_module(name)
    except ImportError as error:
        raise Unreadable("jaxlib, which reads Pallas kernels, is not installed: pip install 'tpusim[jax]'") from error
    try:
        return read_apart(_read, base64.b64decode(encoded, validate=True), "its body")
    except (binascii.Error, ProgramError) as error:
        raise Unreadable(f"its body is no MLIR: {str(error).splitlines()[0]}") from error


def _read(content: bytes, name: str) -> KernelBody:
    """Return the kernel of MLIR's bytecode or text."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext, _tpu_ext

    with ir.Context() as context:
        # Types of references name memories of this dialect; operations need not be registered.
        _tpu_ext.register_dialect(context)
        context.allow_unregistered_dialects = True
        if not content.startswith(_BYTECODE):
            registry = ir.DialectRegistry()
            _jax_mlir_ext.register_dialects(registry)
            context.append_dialect_registry(registry)
        try:
            with bounded(content, name):
                module = ir.Module.parse(content)
                _require_text(module.operation)
        except UnicodeDecodeError as error:
            raise Unreadable(f"{name} is no MLIR: expected names in UTF-8, found bytes that are none") from error
        except (ir.MLIRError, ProgramError, ValueError) as error:
            raise Unreadable(f"{name} is no MLIR: {str(error).splitlines()[0]}") from error
        try:
            return _kernel(ir, module.operation)
        # It is MLIR, but attributes, types or regions are missing, or of other kinds than a kernel's.
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise Unreadable(f"{name} is no kernel: {type(error).__name__}") from error


def _require_text(module: Any) -> None:
    """Raise ValueError for a module with a name that is no text: to ask MLIR's Python for it would end the process."""
    written = module.get_asm(binary=True, large_elements_limit=1)
    re.sub(_ESCAPED, lambda found: bytes.fromhex(found[1].decode()), written).decode()


def _kernel(ir: Any, module: Any) -> KernelBody:
    """Return what a module of one kernel and its transforms says."""
    found = [operation.operation for operation in module.regions[0].blocks[0].operations]
    functions = {item.attributes["sym_name"].value: item for item in found if "sym_name" in item.attributes}
    # The kernel is the first function; the others are named by its windows.
    main = next(iter(functions.values()), None)
    if main is None:
        raise Unreadable("its body has no function")
    says = _attributes(ir, main)
    function, grid = _function(ir, main), tuple(map(index, says.get("iteration_bounds", ())))
    prefetched, scratch = int(says.get("scalar_prefetch", 0)), int(says.get("scratch_operands", 0))
    if "window_params" in says:
        windows = tuple(_window(item) for item in says["window_params"])
    else:
        count = len(function.block.arguments) - scratch
        windows = tuple(_whole(function.argument_type(at)) for at in range(len(grid) + prefetched, count))
    return KernelBody(
        version=int(_attributes(ir, module).get("stable_mosaic.version", 0)),
        grid=grid,
        semantics=tuple(_word(text) for text in says.get("dimension_semantics", ())),
        prefetched=prefetched,
        windows=windows,
        scratch=scratch,
        main=function,
        functions={w.transform: _function(ir, functions[w.transform]) for w in windows if w.transform in functions},
    )


def _window(stated: Any) -> Window:
    """Return a window of a kernel's ``window_params``."""
    fields = stated if isinstance(stated, dict) else {}
    return Window(
        transform=str(fields.get("transform_indices", "")),
        bounds=tuple(map(index, fields.get("window_bounds", ()))),
        kind=str(fields.get("window_kind", "")),
        pipeline_mode=str(fields.get("pipeline_mode", "")),
    )


def _whole(reference: Type) -> Window:
    """Return the window of an operand of a kernel without a grid: all of it, unless the kernel fetches it itself."""
    return Window(bounds=reference.dimensions if reference.space in (VMEM, SMEM) else ())


def _word(text: str) -> str:
    """Return what stands between the angle brackets of an attribute: ``parallel`` of a dimension's semantics."""
    return text.partition("<")[2].rpartition(">")[0] or text


class _Values:
    """Numbers for the values of a function, in the order in which they are defined."""

    def __init__(self, ir: Any) -> None:
        self.ir = ir
        self.types: list[Type] = []
        self._numbers: dict[Any, int] = {}

    def define(self, values: Any) -> tuple[int, ...]:
        """Return new numbers for some values."""
        for value in values:
            self._numbers[value] = len(self.types)
            self.types.append(_type(self.ir, value.type))
        return tuple(self._numbers[value] for value in values)

    def use(self, values: Any) -> tuple[int, ...]:
        """Return the numbers of values that are defined."""
        return tuple(self._numbers[value] for value in values)


def _function(ir: Any, operation: Any) -> Function:
    values = _Values(ir)
    block = _block(operation.regions[0], values)
    return Function(operation.attributes["sym_name"].value, block, tuple(values.types))


def _block(region: Any, values: _Values) -> Block:
    """Return the block of a region; one of several, or of none, has no place in a kernel."""
    blocks = list(region.blocks)
    if len(blocks) != 1:
        raise Unreadable(f"a region of its body has {len(blocks)} blocks")
    arguments = values.define(blocks[0].arguments)
    return Block(arguments, tuple(_operation(item.operation, values) for item in blocks[0].operations))


def _operation(operation: Any, values: _Values) -> Operation:
    operands = values.use(operation.operands)
    regions = tuple(_block(region, values) for region in operation.regions if len(list(region.blocks)))
    place = re.search(_PLACE, str(operation.location))
    return Operation(
        name=operation.name.removeprefix(_DIALECT),
        operands=operands,
        results=values.define(operation.results),
        attributes=_attributes(values.ir, operation),
        regions=regions,
        source=f"{place[1]}:{place[2]}" if place else "",
    )


def _type(ir: Any, given: Any) -> Type:
    """Return a type; what is neither a vector nor a reference is a scalar of its name."""
    for kind, of in (("memref", ir.MemRefType), ("vector", ir.VectorType)):
        if isinstance(given, of):
            space = _word(str(given.memory_space)) if kind == "memref" and given.memory_space else ""
            return Type(kind, str(given.element_type), tuple(given.shape), space)  # type: ignore[arg-type]
    return Type("scalar", str(given))


def _attributes(ir: Any, operation: Any) -> dict[str, Any]:
    attributes = operation.attributes
    names = [item if isinstance(item, str) else item.name for item in attributes]
    return {name: _plain(ir, attributes[name]) for name in names}


def _plain(ir: Any, attribute: Any) -> Any:
    """Return an attribute as numbers, texts, tuples and dictionaries, or as MLIR writes it."""
    if isinstance(attribute, ir.DenseElementsAttr):
        return _constant(ir, attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(_plain(ir, item) for item in attribute)
    if isinstance(attribute, ir.DictAttr):
        return {item.name: _plain(ir, item.attr) for item in attribute}
    if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr | ir.StringAttr | ir.FlatSymbolRefAttr):
        return attribute.value
    if isinstance(attribute, ir.DenseI64ArrayAttr | ir.DenseI32ArrayAttr | ir.DenseBoolArrayAttr):
        return tuple(attribute)
    return str(attribute)


def _constant(ir: Any, dense: Any) -> Any:
    """Return the one value of a constant vector, all of them in row-major order, or None where they are too many."""
    if dense.is_splat:
        return _plain(ir, dense.get_splat_value())
    return tuple(dense) if len(dense) <= _MOST_ELEMENTS else None
