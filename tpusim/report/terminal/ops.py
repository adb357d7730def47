"""The table of operations: what each opcode takes, and which rooms know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tpusim.ir.ops import Operation
from tpusim.report.tables import Printer, escape, plain_table


def render_ops(operations: Iterable[Operation], rooms: Mapping[str, frozenset[str]], console: Printer) -> None:
    """Print one line per opcode: category, operand count, attributes, and a mark for each room that has its rule."""
    last = "attributes (* required)"
    table = plain_table("opcode", "category", "operands", *rooms, last, wraps=(last,))
    for row in operations:
        marks = ["yes" if row.name in opcodes else "no" for opcodes in rooms.values()]
        named = [*(f"{name}*" for name in sorted(row.required)), *sorted(row.optional)]
        table.add_row(row.name, row.category.value, _count(row), *marks, escape(" ".join(named)))
    console.print(table)


def _count(row: Operation) -> str:
    if row.fewest_operands == row.most_operands:
        return str(row.fewest_operands)
    return f"{row.fewest_operands}.." if row.most_operands is None else f"{row.fewest_operands}..{row.most_operands}"
