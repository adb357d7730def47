"""What each device runs of a program for several: XLA partitions it, in the part of jaxlib that compiles for CPUs.

All that this does before it partitions is the same for every processor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tpusim.errors import UnsupportedError
from tpusim.limits import DEVICES, Limit, allow_more

_PASS: Final = "spmd-partitioning"
_CUT_UP: Final = Limit("a number of devices that XLA cuts programs up for here", 2**11)
_DEVICE_BYTES: Final = 64 << 20
"""Of addresses for each device of XLA's client: stacks of its threads, nearly all of them never touched."""
_OF_SHARDY: Final = "sdy.mesh"
"""In every module whose shardings are Shardy's, also in the form that XLA hands on: these are of a mesh."""
_ERRORS_TOO: Final = 3
"""Up to which severity what XLA logs is left out: what ends the process is said still."""

BYTECODE: Final = b"ML\xefR"
"""What MLIR's bytecode begins with."""


def partitioned_text(program: Any, name: str) -> str:
    """Return the HLO text of one device of a StableHLO module (text, bytecode or jaxlib's own); empty if it is for one.

    Empty as well where this jaxlib is not one that has been tried: then it stays whole. Raises UnsupportedError under
    the program's ``name``, with the reason, if XLA does not partition it.
    """
    with suppress(ImportError, AttributeError, TypeError, KeyError, ValueError):
        module = parsed(program) if isinstance(program, bytes) else program
        attributes = module.operation.attributes
        replicas, partitions = (attributes[f"mhlo.num_{what}"].value for what in ("replicas", "partitions"))
        if replicas == 1 and 1 < partitions <= DEVICES.most:
            return _partitioned(module, partitions, name)
    return ""


def parsed(content: bytes) -> Any:
    """Return jaxlib's own form of StableHLO in text or bytecode."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    with context:
        if content.startswith(BYTECODE):
            return stablehlo.deserialize_portable_artifact(context, content)
        return ir.Module.parse(content)


def _partitioned(module: Any, partitions: int, name: str) -> str:
    """Return what XLA writes down after its pass; what it makes for CPUs then is not asked for, and may fail."""
    # Every program comes by here, to be told from StableHLO; few come this far.
    from tempfile import TemporaryDirectory

    import jaxlib._jax as library
    import numpy as np

    if fault := _CUT_UP.fault(partitions):
        raise UnsupportedError(f"{name}: {fault}")
    allow_more(partitions * _DEVICE_BYTES)
    client = library.get_tfrt_cpu_client(num_devices=partitions)
    options = library.CompileOptions()
    build = options.executable_build_options
    options.num_partitions = build.num_partitions = partitions
    options.device_assignment = build.device_assignment = library.DeviceAssignment.create(np.arange(partitions)[None])
    build.use_spmd_partitioning, build.use_shardy_partitioner = True, _OF_SHARDY in str(module)
    (main,) = [one for one in module.body.operations if getattr(one, "sym_name", None) and one.sym_name.value == "main"]
    build.allow_spmd_sharding_propagation_to_parameters = _open(main, "arg_attrs", len(main.type.inputs))
    build.allow_spmd_sharding_propagation_to_output = _open(main, "res_attrs", len(main.type.results))
    with TemporaryDirectory() as folder:
        # As text, which says for how many devices it is: a serialised module does not.
        dumped = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": _PASS, "xla_dump_large_constants": True}
        options.env_option_overrides = [*dumped.items(), ("xla_backend_optimization_level", 0)]
        reason = ""
        try:
            with _quiet():
                client.compile_and_load(module, library.DeviceList(tuple(client.local_devices())), options)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
        files = sorted(Path(folder).glob(f"*after_{_PASS}*.txt"))
        if reason and not files:
            raise UnsupportedError(f"{name}: XLA does not cut it up for its {partitions} devices: {reason}")
        return files[-1].read_text(encoding="utf-8") if files else ""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep XLA from logging, with its stack, what it also raises."""
    try:
        from jaxlib.utils import absl_set_min_log_level as log_from
    # In 0.7 it was not there.
    except ImportError:
        yield
        return
    log_from(_ERRORS_TOO)
    try:
        yield
    finally:
        # What it was cannot be asked; JAX sets it so where the user does not.
        level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
        log_from(int(level) if level in ("0", "1", "2", "3") else 1)


def _open(main: Any, attribute: str, count: int) -> list[bool]:
    """Return of each argument or result of a function whether XLA may choose how devices share it."""
    stated = main.attributes[attribute] if attribute in main.attributes else [()] * count
    return [not any(name in each for name in ("sdy.sharding", "mhlo.sharding")) for each in stated]
