"""The oracle of this room: the same HLO text run by XLA on the CPU, and by us.

XLA is told to round after every instruction (no excess precision), which is what the text says.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tpusim import numerics
from tpusim.numerics.evaluate import evaluate
from tpusim.numerics.site import Device, Settings
from tpusim.source import SourceText
from tpusim.text.literals import literal_values
from tpusim.text.parser import parse_module

if TYPE_CHECKING:
    from collections.abc import Iterable

    Array = np.ndarray[Any, np.dtype[Any]]


def run_xla(text: str, inputs: Iterable[Any], **options: Any) -> list[Array]:
    """Return the flattened outputs of an HLO module on XLA's CPU backend; skips the test where jaxlib is missing.

    ``options`` are XLA's debug options by name. Raises ``Exception`` for what XLA refuses.
    """
    jax = pytest.importorskip("jax")
    # Without it JAX would make f32 of the f64 inputs.
    with jax.enable_x64(True):
        executable = _compiled(text, tuple(options.items()))
        buffers = [jax.device_put(np.asarray(value)) for value in inputs]
        outputs = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return [np.asarray(output[0]) for output in outputs]


def run_ours(text: str, inputs: Iterable[Any], precision: str = "exact", **settings: Any) -> list[Array]:
    """Return the flattened outputs of an HLO module as this package computes them."""
    _load_rules()
    module = parse_module(SourceText("test.hlo", text))
    wanted = Settings(read_literal=literal_values, precision=precision, **settings)
    return flatten(evaluate(module, [[np.asarray(value) for value in inputs]], wanted, [Device()])[0])


def flatten(value: Any) -> list[Any]:
    """Return the leaves of a value, tuples in order."""
    return [leaf for part in value for leaf in flatten(part)] if isinstance(value, tuple) else [value]


@cache
def _load_rules() -> None:
    """Import the whole room, which fills the table of rules."""
    for file in walk_packages(numerics.__path__, "tpusim.numerics."):
        import_module(file.name)


@lru_cache(maxsize=256)
def _compiled(text: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """Compile a module for the first CPU device."""
    hlo = pytest.importorskip("jaxlib._hlo")
    client = pytest.importorskip("jaxlib.xla_client")
    device = pytest.importorskip("jax").devices("cpu")[0]
    proto = hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    wanted = client.CompileOptions()
    # Inside a fusion XLA may otherwise keep more bits than the text says.
    wanted.env_option_overrides = [("xla_allow_excess_precision", False), *options]
    # The client compiles StableHLO only. On this way rng-bit-generator turns unsigned; its bits stay.
    code = client._xla.mlir.hlo_to_stablehlo(proto)
    return device.client.compile_and_load(code, client.DeviceList((device,)), wanted)
