"""``ir.Module`` to HLO text, byte for byte as XLA prints it.

Source: XLA, ``HloPrintOptions``.
"""

from __future__ import annotations

from enum import Enum

from tpusim.ir.module import Computation, Instruction, Literal, Module, prints_modules
from tpusim.shapes.shape import shape_text
from tpusim.text.attributes.table import MODULE_KINDS, show_attributes
from tpusim.text.strings import quoted

_INDEX_COMMENT_INTERVAL = 5


class Style(Enum):
    """Which of XLA's forms to print; both parse again."""

    DEFAULT = "default"
    """``%`` before names, signatures of computations, every fifth operand numbered."""

    SHORT = "short"
    """Bare names and no signatures, as front ends hand programs over."""


@prints_modules
def print_module(module: Module, style: Style = Style.DEFAULT) -> str:
    """Return the HLO text of a module; it ends with an empty line, as XLA's does."""
    # The last computation is followed by an empty line as well.
    parts = [_header_text(module), *(_computation_text(module, c, style) for c in module.computations)]
    return "\n\n".join(parts) + "\n\n"


def signature_text(computation: Computation) -> str:
    """Return ``(name: shape, ...) -> shape`` of a computation, without layouts."""
    parameters = (f"{p.name}: {shape_text(p.shape, layout=False)}" for p in computation.parameters)
    return f"({', '.join(parameters)}) -> {shape_text(computation.root.shape, layout=False)}"


def instruction_text(instruction: Instruction, style: Style = Style.DEFAULT) -> str:
    """Return one instruction without ``ROOT`` and indentation."""
    sigil = "%" if style is Style.DEFAULT else ""
    attributes = show_attributes(instruction.opcode, instruction.attributes, sigil) if instruction.attributes else ""
    arguments = _arguments_text(instruction, sigil)
    return f"{sigil}{instruction.name} = {instruction.shape} {instruction.opcode}({arguments}){attributes}"


def _header_text(module: Module) -> str:
    """Return the first line and the tables."""
    attributes = (f", {name}={MODULE_KINDS[name].show(value, '%')}" for name, value in module.attributes.items())
    tables = ["\n".join([title, *rows]) for title, rows in module.tables.items()]
    # XLA leaves one more line empty after the last table.
    return "\n\n".join([f"HloModule {module.name}{''.join(attributes)}", *tables]) + "\n" * bool(tables)


def _computation_text(module: Module, computation: Computation, style: Style) -> str:
    entry = "ENTRY " if computation.name == module.entry_name else ""
    head = f"%{computation.name} {signature_text(computation)}" if style is Style.DEFAULT else computation.name
    thread = computation.execution_thread
    foot = "}" if thread == "main" else f"}}, execution_thread={quoted(thread)}"
    lines = (
        f"  {'ROOT ' if i.name == computation.root_name else ''}{instruction_text(i, style)}"
        for i in computation.instructions
    )
    return "\n".join([f"{entry}{head} {{", *lines, foot])


def _arguments_text(instruction: Instruction, sigil: str) -> str:
    immediate = instruction.immediate
    if immediate is not None:
        return immediate.text if isinstance(immediate, Literal) else str(immediate)
    names = [sigil + name for name in instruction.operands]
    # The short style numbers elements of shapes, but not operands.
    if sigil:
        for number in range(_INDEX_COMMENT_INTERVAL, len(names), _INDEX_COMMENT_INTERVAL):
            names[number] = f"/*index={number}*/{names[number]}"
    return ", ".join(names)
