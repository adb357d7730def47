"""From a JAX function to the program that the TPU compiler makes of it, without a TPU: ``pip install 'tpusim[jax]'``.

JAX compiles ahead of time for a slice that is not there (``jax.experimental.topologies``, with libtpu on Linux). What
comes out is the compiled text that ``tpusim.load`` reads.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tpusim.errors import ConfigError
from tpusim.hardware.load import resolve_chip_name
from tpusim.hardware.pod import parse_topology
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpusim.ir.module import Module

_SMALLEST_SLICES = {
    "v2": "v2:2x2",
    "v3": "v3:2x2",
    "v4": "v4:2x2x1",
    "v5e": "v5e:2x2",
    "v5p": "v5p:2x2x1",
    "v6e": "v6e:2x2",
    "v7x": "tpu7x:2x2x1",
}
"""By chip the slice that JAX is asked for: one host, as the names of Google Cloud have it."""

# Without these libtpu asks a metadata server for its name, which fails after minutes outside of Google Cloud, and locks
# out other processes, as if there were a TPU to share.
_NO_TPU_HERE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def compile_for(function: Callable[..., Any], *arguments: Any, topology: str = "v5e", **keywords: Any) -> Module:
    """Return the program that the TPU compiler makes of a JAX function, ready for ``tpusim.simulate``.

    ``arguments`` and ``keywords`` are those of a call, as arrays or ``jax.ShapeDtypeStruct`` (of which only shape, type
    and sharding count), in any pytree. ``function`` may be jitted already, with its own options. ``topology`` is a chip
    (``v5e``) or a slice (``v5e:2x4``, ``tpu7x:2x2x1``); what has no sharding goes to its first device. For a mesh over
    all of them take ``devices_of``. Raises ConfigError if JAX or libtpu is missing or does not know the slice, or if
    the compiler fails; what JAX says of a function that it cannot trace stays as it is.
    """
    jax = _jax()
    first = devices_of(topology)[0]
    alone = jax.sharding.SingleDeviceSharding(first)
    shapes = jax.tree.map(lambda leaf: _described(leaf, alone), (arguments, keywords))
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    own_name = getattr(function, "__name__", "function")
    text = _compiled_text(jitted.trace(*shapes[0], **shapes[1]).lower(lowering_platforms=("tpu",)), own_name, topology)
    # The chip in the name is where a run finds it.
    return parse_module(SourceText(f"{own_name}.{_chip_of(topology)}.hlo.txt", text))


def _compiled_text(lowered: Any, name: str, topology: str) -> str:
    """Return what the compiler makes of a lowered function; raise ConfigError if it fails."""
    try:
        return str(lowered.compile().as_text())
    # Of a function that does not fit the chip, say; the first line is the reason, the rest the compiler's own stack.
    except _jax().errors.JaxRuntimeError as error:
        reason = (str(error).splitlines() or [repr(error)])[0]
        raise ConfigError(f"{name}: JAX has no compiled text for {topology}: {reason}") from error


def devices_of(topology: str = "v5e") -> list[Any]:
    """Return the devices of a slice that is not there, for ``jax.sharding.Mesh`` and its kind; errors as above."""
    jax = _jax()
    name = _SMALLEST_SLICES.get(_chip_of(topology)) if ":" not in topology else topology
    try:
        with _alone():
            return list(jax.experimental.topologies.get_topology_desc(name, platform="tpu").devices)
    # JAX raises whatever its backend gives it; the first line says which name it did not take.
    except Exception as error:
        reason = (str(error).splitlines() or [repr(error)])[0]
        hint = "" if find_spec("libtpu") else " (libtpu is not installed: pip install 'tpusim[jax]')"
        raise ConfigError(f"{topology}: JAX cannot compile for this slice{hint}: {reason}") from error


def _jax() -> Any:
    """Return the module, with the parts that it does not load by itself."""
    try:
        import jax
        import jax.experimental.topologies
    except ImportError as error:
        raise ConfigError("tpusim.jax needs JAX and libtpu: pip install 'tpusim[jax]'") from error
    return jax


def _chip_of(topology: str) -> str:
    """Return the chip that a topology's name begins with."""
    chip = resolve_chip_name(parse_topology(topology).chip if ":" in topology else topology)
    if chip not in _SMALLEST_SLICES:
        raise ConfigError(f"{topology}: expected one of {', '.join(_SMALLEST_SLICES)}, found {chip}")
    return chip


def _described(leaf: Any, alone: Any) -> Any:
    """Return an argument's shape, type and place; numbers of Python stay what they are."""
    jax = _jax()
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        leaf = jax.numpy.asarray(leaf)
    given = leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=given or alone)


@contextmanager
def _alone() -> Iterator[None]:
    """Keep libtpu from looking for a TPU for a while; what the user has set stays."""
    added = {key: value for key, value in _NO_TPU_HERE.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]
