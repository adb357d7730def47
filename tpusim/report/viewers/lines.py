"""The lines of a program as viewers show them."""

from __future__ import annotations

from tpusim.ir.module import Module

_NOTES = ", backend_config="


def instruction_lines(module: Module | None) -> list[str]:
    """Return the lines of a module's text, without the compiler's own notes at their ends; none if it has no text."""
    source = module.source.text if module is not None and module.source else ""
    # The notes are tens of kilobytes in places.
    return [line.split(_NOTES)[0].strip().removeprefix("ROOT ") for line in source.splitlines()]
