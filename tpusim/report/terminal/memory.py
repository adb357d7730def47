"""A program's memory on a terminal: what it needs, what is alive at the peak, what padding costs, and what the
compiler would say if it did not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpusim.analysis.memory import MemoryProfile, MemoryReport, MemoryUse, SpaceUse
from tpusim.hardware.units import HBM, UNITS
from tpusim.program.buffers import Buffer
from tpusim.report.out_of_memory import oom_text
from tpusim.report.provenance import provenance_text
from tpusim.report.tables import Printer, escape, plain_table, size_text

_SHOWN = 20
_SHOWN_PADDED = 10
_OP_WIDTH = 24
# Long texts, of which the ends say most, and shapes with their layouts.
_LAST = ("<op", "<source", "shape")


def render_memory(report: MemoryReport, console: Printer) -> None:
    """Print what is needed, the buffers at the peak of each memory, padding, and the compiler's message if any."""
    console.print(f"[bold]{escape(report.program)}[/bold] on {escape(report.chip)} (simulated)")
    made_by = provenance_text(report.provenance, report.chip)
    if made_by:
        console.print(f"compiled {escape(made_by)}")
    console.print()
    console.print(f"  {use_text(report.use)}")
    for space in report.spaces:
        console.print(f"  {_space_line(space)}")
    for space in report.spaces:
        if space.profile.buffers:
            console.print()
            _print_peak(space.profile, console)
    console.print()
    _print_padding(report.padded, console)
    message = oom_text(report)
    if message:
        console.print()
        console.print("The compiler would refuse this program:")
        console.print()
        console.print(message, markup=False, highlight=False, soft_wrap=True)


def use_text(use: MemoryUse) -> str:
    """Return what the peak of HBM is the sum of; outputs that are written over arguments add nothing."""
    over = f" ({size_text(use.alias_bytes)} of them over arguments)" if use.alias_bytes else ""
    constants = f", constants {size_text(use.constant_bytes)}" if use.constant_bytes else ""
    outputs = f"outputs {size_text(use.output_bytes)}{over}{constants}"
    return f"arguments {size_text(use.argument_bytes)}, {outputs}, temporaries {size_text(use.heap_bytes)}"


def _space_line(space: SpaceUse) -> str:
    """Return one line about a memory space: its peak, its holes, what is left."""
    label = f"{UNITS[space.profile.space].label:<9}"
    left = space.free_bytes
    room = f"{size_text(left)} free" if left >= 0 else f"[red]{size_text(-left)} too much[/red]"
    holes = f", {size_text(space.profile.fragmentation_bytes)} in holes" if space.profile.space == HBM else ""
    return f"{label} {size_text(space.needed_bytes)} of {size_text(space.capacity_bytes)}, {room}{holes}"


def _print_peak(profile: MemoryProfile, console: Printer) -> None:
    alive = profile.alive_at(profile.peak_position)
    where = f" while {escape(profile.peak_instruction)} runs" if profile.peak_instruction else ""
    console.print(f"{UNITS[profile.space].label} at its peak{where}, {size_text(profile.peak_bytes)}")
    table = plain_table(
        "buffer", ">size", ">unpadded", ">expansion", "kind", *_LAST, wraps=("buffer", "kind"), cut=("shape",)
    )
    for buffer in alive[:_SHOWN]:
        table.add_row(*_cells(buffer))
    console.print(table)
    if len(alive) > _SHOWN:
        rest = sum(buffer.n_bytes for buffer in alive[_SHOWN:] if not buffer.within)
        console.print(f"... and {len(alive) - _SHOWN} more, {size_text(rest)} together (--json has them all)")


def _cells(buffer: Buffer) -> Iterator[str]:
    yield escape(buffer.name)
    # What lies in another buffer adds nothing to the sum.
    yield f"({size_text(buffer.n_bytes)})" if buffer.within else size_text(buffer.n_bytes)
    yield size_text(buffer.unpadded_bytes) if buffer.unpadded_bytes else ""
    yield f"{buffer.expansion:.2f}x" if buffer.unpadded_bytes else ""
    yield escape(f"in {buffer.within}" if buffer.within else buffer.kind)
    yield escape(_op_text(buffer))
    yield escape(buffer.source)
    yield escape(buffer.shape)


def _op_text(buffer: Buffer) -> str:
    """Return what made a buffer; of scopes, which are long, the end, where the operation stands."""
    name = buffer.op_name or buffer.opcode
    return name if len(name) <= _OP_WIDTH else f"…{name[1 - _OP_WIDTH :]}"


def _print_padding(padded: Sequence[Buffer], console: Printer) -> None:
    if not padded:
        console.print("No buffer is padded.")
        return
    console.print(f"Padding wastes most in (of {len(padded)} padded buffers)")
    table = plain_table("buffer", ">wasted", ">expansion", "memory", *_LAST, cut=("shape",))
    for buffer in padded[:_SHOWN_PADDED]:
        figures = (size_text(buffer.padding_bytes), f"{buffer.expansion:.2f}x", UNITS[buffer.space].label)
        words = (buffer.name, *figures, _op_text(buffer), buffer.source, buffer.shape)
        table.add_row(*(escape(word) for word in words))
    console.print(table)
