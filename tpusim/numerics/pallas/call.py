"""What a custom call to a Pallas kernel computes: its kernel, run on each device and, if it communicates, on all."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tpusim.errors import UnsupportedError
from tpusim.ir.module import Instruction
from tpusim.ir.mosaic import Unreadable
from tpusim.numerics.custom_calls.table import target
from tpusim.numerics.pallas.kernel import Call, KernelRun, bound_kernel, drive
from tpusim.numerics.pallas.table import seen_as
from tpusim.numerics.registry import array_shape
from tpusim.numerics.site import Meet, Site
from tpusim.semantics.aliasing import in_place_operands
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import TupleShape, leaves


@target("tpu_custom_call")
def pallas_call(site: Site, instruction: Instruction, operands: list[Any]) -> Generator[Meet, Any, Any]:
    """Return what a Pallas kernel writes; raises UnsupportedError where its body cannot be read or computed."""
    try:
        kernel = bound_kernel(instruction.backend_config.kernel_body, site.settings)
    except Unreadable as error:
        message = f"{instruction.name}: expected a Pallas kernel whose code can be read, found that {error.message}"
        raise UnsupportedError(message) from error
    shapes = [array_shape(leaf) for leaf in leaves(instruction.shape)]
    aliases = in_place_operands(site.module, instruction)
    call = Call(operands, [shape.dimensions for shape in shapes], aliases)
    run = KernelRun(kernel, call, site.device_number, site.settings.seed, site.device.work)
    devices = site.module.replica_count * site.module.partition_count
    if kernel.meets_others and devices > 1:
        company = yield Meet(site.place(instruction), tuple(range(devices)), run)
    else:
        company = {run.device: run}
    # Devices go on in the order of their numbers: the first one drives all.
    if run.device == min(company):
        drive(company)
    pairs = zip(run.results, shapes, strict=True)
    values = tuple(seen_as(array, numpy_dtype(shape.dtype)) for array, shape in pairs)
    return values if isinstance(instruction.shape, TupleShape) else values[0]
