"""Products on a systolic array by itself, which needs nothing of the stages of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from msgspec import structs

from tpusim.errors import ConfigError, UnsupportedError, did_you_mean
from tpusim.hardware.array import Array
from tpusim.hardware.buffers import Buffers
from tpusim.limits import CYCLES
from tpusim.program.layers import Layer, load_layers
from tpusim.systolic.closed_form import run_gemm
from tpusim.timeline.folds import ArrayRun, MemoryRun

R = TypeVar("R")

MODELS: Final = ("fast", "cycle")


def run_layers(layers: Sequence[Layer] | str | Path, array: Array, model: str = "fast") -> list[tuple[Layer, ArrayRun]]:
    """Return what each layer takes on a systolic array: in closed form (``fast``), or counted (``cycle``).

    ``layers`` may be a path to a CSV file, see ``program/layers.py``. Raises ConfigError for what is neither.
    """
    if model not in MODELS:
        raise ConfigError(
            f"model: expected one of {', '.join(MODELS)}, found {model!r}{did_you_mean(str(model), MODELS)}"
        )
    found = load_layers(layers) if isinstance(layers, str | Path) else _listed(layers)
    _check_array(array)
    if model == "fast":
        return list(zip(found, _each(lambda layer: run_gemm(layer, array), found), strict=True))
    _check_cycles(found, array, ": the model 'fast' has no such limit")
    # Numba loads only where cycles are counted.
    from tpusim.systolic.count import count_layer

    return list(zip(found, _each(lambda layer: count_layer(layer, array), found), strict=True))


def _check_array(array: object) -> None:
    if not isinstance(array, Array):
        raise ConfigError(f"array: expected an Array, found {array!r:.80}")


def _listed(layers: object) -> list[Layer]:
    """Return layers that were given as a list; anything else is refused."""
    found = list(layers) if isinstance(layers, Iterable) else None
    if found is None or not all(isinstance(one, Layer) for one in found):
        raise ConfigError(f"layers: expected a list of Layer, or a path to a CSV file of them, found {layers!r:.80}")
    return found


def _each(run: Callable[[Layer], R], layers: Sequence[Layer]) -> list[R]:
    """Run each layer, of those that differ in names alone one: a depthwise convolution has one for each channel."""
    unnamed = list(map(_unnamed, layers))
    runs = {unlike: run(layer) for unlike, layer in dict(zip(unnamed, layers, strict=True)).items()}
    return [runs[layer] for layer in unnamed]


def _unnamed(layer: Layer) -> Layer:
    return structs.replace(layer, name="")


def _check_cycles(layers: Sequence[Layer], array: Array, hint: str = "") -> None:
    """Raise UnsupportedError if all layers together have too many cycles to go through one by one."""
    cycles = sum(run_gemm(layer, array).cycles for layer in set(map(_unnamed, layers)))
    if fault := CYCLES.fault(cycles):
        raise UnsupportedError(f"{layers[0].name if len(layers) == 1 else 'layers'}: {fault}{hint}")


def run_layers_with_memory(layers: Sequence[Layer], array: Array, buffers: Buffers) -> list[MemoryRun]:
    """Return what each layer takes on an array with SRAMs whose folds run one after the other, as SCALE-Sim has it."""
    found = _listed(layers)
    _check_array(array)
    _check_cycles(found, array)
    # Numba loads only where memory is gone through.
    from tpusim.systolic.memory.run import run_memory

    return _each(lambda layer: run_memory(layer, array, buffers), found)
