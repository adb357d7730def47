"""What tpusim's own compiler notes in the first line of a module: that it made it, and for which chip.

The notes are ``frontend_attributes`` of the module, so that they stay in a text that is written to a file.
"""

from __future__ import annotations

from typing import Any

from tpusim.ir.attributes import Raw
from tpusim.ir.module import Module
from tpusim.semantics.infer.control import frontend_attributes

COMPILED_FOR = "tpusim_compiled_for"
"""The chip that tpusim compiled a module for."""

RETILED_FOR = "tpusim_retiled_for"
"""The chip that tpusim chose the tiles of another compiler's kernels anew for."""


def mark_of(module: Module, mark: str) -> str:
    """Return the chip that a mark names; empty if the module has no such mark."""
    return frontend_attributes(module.attributes).get(mark, "")


def with_mark(attributes: dict[str, Any], mark: str, chip_name: str) -> dict[str, Any]:
    """Return a module's attributes with a mark that names a chip."""
    others = str(attributes.get("frontend_attributes", "{}")).strip().removeprefix("{").removesuffix("}")
    # A chip of a user's own may be called anything.
    named = f'{mark}="{chip_name.translate(_IN_QUOTES)}"'
    return attributes | {"frontend_attributes": Raw("{" + ",".join(filter(None, (named, others))) + "}")}


_IN_QUOTES = str.maketrans({'"': "'", "\\": "/", "\n": " "})
