"""XLA's own parser, the oracle of this room."""

from __future__ import annotations

import pytest

_hlo = pytest.importorskip("jaxlib._hlo")


def reprint(text: str) -> str:
    """Return what XLA prints after reading ``text``; raises ``Exception`` if XLA refuses it."""
    return str(_hlo.hlo_module_from_text(text).to_string())


def reprint_in_full(text: str) -> str:
    """Return the same with constants of any size in full."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return str(_hlo.hlo_module_from_text(text).to_string(options))


def accepts(text: str) -> bool:
    """Whether XLA's parser reads ``text``."""
    try:
        reprint(text)
    except Exception:
        return False
    return True


def opcode_count() -> int:
    """Return how many opcodes XLA has."""
    return sum(name.startswith("k") for name in dir(_hlo.HloOpcode))
