"""XLA's own readers and its printer, as jaxlib brings them: no TPU, no libtpu and no compiler is asked."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tpusim.errors import ConfigError

MOST_CONSTANT_BYTES: Final = 32 << 20
"""Bytes of a serialised module up to which its text has every constant in full; beyond, XLA leaves out large ones.

Text takes some three times as much. A run needs no values, and a computation refuses constants that are left out.
"""


class Jaxlib(msgspec.Struct, frozen=True):
    """The two modules of jaxlib that read programs: HLO itself, and what turns StableHLO into it."""

    hlo: Any
    mlir: Any
    version: str


def jaxlib(what: str) -> Jaxlib:
    """Return jaxlib's readers; raise ConfigError with what to install if they are not there to read ``what``."""
    try:
        import jaxlib._jax as everything
    except ImportError as error:
        advice = "pip install 'tpusim[jax]', or write the program out as HLO text, e.g. with compiled.as_text() of JAX"
        raise ConfigError(f"{what} is read by jaxlib, from 0.7 on, which is not installed: {advice}") from error
    try:
        import jaxlib._hlo as hlo
    # Until 0.10.1 it stood with everything else.
    except ImportError:
        hlo = everything
    # Takes longer to load than HLO text of some thousand lines to read.
    from importlib.metadata import version

    return Jaxlib(hlo, everything.mlir, version("jaxlib"))


def module_text(module: Any, what: str) -> str:
    """Return the text of an ``HloModule`` of jaxlib, with the places in its source that instructions came from."""
    options = jaxlib(what).hlo.HloPrintOptions()
    options.print_large_constants = len(module.as_serialized_hlo_module_proto()) <= MOST_CONSTANT_BYTES
    return str(module.to_string(options))


def module_proto(text: str, what: str) -> bytes:
    """Return XLA's ``HloModuleProto`` of HLO text."""
    return bytes(jaxlib(what).hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
