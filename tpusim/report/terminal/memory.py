"""A program's memory on a terminal and as JSON: what it needs, what is alive at the peak, what padding costs, and what
the compiler would say if it did not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from tpusim.hardware.units import HBM, UNITS
from tpusim.report.tables import plain_table, size_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from tpusim.analysis.memory import MemoryProfile, MemoryReport, SpaceUse
    from tpusim.program.buffers import Buffer

_SHOWN = 20
_SHOWN_PADDED = 10
# As many as XLA lists.
_SHOWN_ALLOCATIONS = 20


def memory_json(report: MemoryReport) -> dict[str, Any]:
    """Return a memory report as plain data with stable keys; sizes in bytes, positions in the flat schedule."""
    return {
        "program": report.program,
        "chip": report.chip,
        "memory": {name: getattr(report.use, name) for name in report.use.__struct_fields__},
        "spaces": {space.profile.space: _space_json(space) for space in report.spaces},
        "padding": [_buffer_json(buffer) for buffer in report.padded],
        "compiler_message": oom_text(report),
        # Said in the data itself, as files outlast what was known about them.
        "simulated": True,
    }


def _space_json(space: SpaceUse) -> dict[str, Any]:
    """Return one memory space as plain data, with the buffers alive at its peak."""
    profile = space.profile
    return {
        "capacity_bytes": space.capacity_bytes,
        "needed_bytes": space.needed_bytes,
        "free_bytes": space.free_bytes,
        "held_bytes": profile.held_bytes,
        "heap_bytes": profile.heap_bytes,
        "fragmentation_bytes": profile.fragmentation_bytes,
        "peak_bytes": profile.peak_bytes,
        "peak_position": profile.peak_position,
        "peak_instruction": _instruction(profile),
        "alive_at_peak": [_buffer_json(buffer) for buffer in profile.alive_at(profile.peak_position)],
    }


def _buffer_json(buffer: Buffer) -> dict[str, Any]:
    """Return one buffer as plain data."""
    fields = {name: getattr(buffer, name) for name in buffer.__struct_fields__}
    return fields | {"expansion": round(buffer.expansion, 4), "padding_bytes": buffer.padding_bytes}


def render_memory(report: MemoryReport, console: Console) -> None:
    """Print what is needed, the buffers at the peak of each memory, padding, and the compiler's message if any."""
    use = report.use
    console.print(f"[bold]{escape(report.program)}[/bold] on {escape(report.chip)} (simulated)")
    console.print()
    console.print(
        f"  arguments {size_text(use.argument_bytes)}, outputs {size_text(use.output_bytes)} "
        f"({size_text(report.alias_bytes)} of them over arguments), temporaries {size_text(use.temp_bytes)}"
    )
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


def _space_line(space: SpaceUse) -> str:
    """Return one line about a memory space: its peak, its holes, what is left."""
    label = f"{UNITS[space.profile.space].label:<9}"
    left = space.free_bytes
    room = f"{size_text(left)} free" if left >= 0 else f"[red]{size_text(-left)} too much[/red]"
    holes = f", {size_text(space.profile.fragmentation_bytes)} in holes" if space.profile.space == HBM else ""
    return f"{label} {size_text(space.needed_bytes)} of {size_text(space.capacity_bytes)}, {room}{holes}"


def _instruction(profile: MemoryProfile) -> str:
    """Return the instruction at the peak, empty where the program names none."""
    return profile.schedule[profile.peak_position] if profile.schedule else ""


def _print_peak(profile: MemoryProfile, console: Console) -> None:
    """Print the largest buffers alive at the peak."""
    alive = profile.alive_at(profile.peak_position)
    at = _instruction(profile)
    where = f" while {escape(at)} runs" if at else ""
    console.print(f"{UNITS[profile.space].label} at its peak{where}, {size_text(profile.peak_bytes)}")
    table = plain_table(
        ("buffer", "left"),
        ("size", "right"),
        ("unpadded", "right"),
        ("expansion", "right"),
        ("kind", "left"),
        ("op", "left"),
        ("source", "left"),
        ("shape", "left"),
    )
    for buffer in alive[:_SHOWN]:
        kind = f"in {buffer.within}" if buffer.within else buffer.kind
        table.add_row(*_cells(buffer, kind))
    console.print(table)
    if len(alive) > _SHOWN:
        rest = sum(buffer.n_bytes for buffer in alive[_SHOWN:])
        console.print(f"... and {len(alive) - _SHOWN} more, {size_text(rest)} together (--json has them all)")


def _cells(buffer: Buffer, kind: str) -> Iterator[str]:
    """Yield the cells of a buffer's line."""
    yield escape(buffer.name)
    yield size_text(buffer.n_bytes)
    yield size_text(buffer.unpadded_bytes) if buffer.unpadded_bytes else ""
    yield f"{buffer.expansion:.2f}x" if buffer.unpadded_bytes else ""
    yield escape(kind)
    yield escape(buffer.op_name or buffer.opcode)
    yield escape(buffer.source)
    yield escape(buffer.shape)


def _print_padding(padded: Sequence[Buffer], console: Console) -> None:
    """Print the buffers that padding makes largest."""
    if not padded:
        console.print("No buffer is padded.")
        return
    console.print(f"Padding wastes most in (of {len(padded)} padded buffers)")
    columns = (("wasted", "right"), ("expansion", "right"), ("memory", "left"), ("op", "left"), ("source", "left"))
    table = plain_table(("buffer", "left"), *columns, ("shape", "left"))  # type: ignore[arg-type]
    for buffer in padded[:_SHOWN_PADDED]:
        figures = (size_text(buffer.padding_bytes), f"{buffer.expansion:.2f}x", UNITS[buffer.space].label)
        words = (buffer.name, *figures, buffer.op_name or buffer.opcode, buffer.source, buffer.shape)
        table.add_row(*(escape(word) for word in words))
    console.print(table)


def oom_text(report: MemoryReport) -> str:
    """Return XLA's message about a program that needs more HBM than there is, empty if it fits.

    The layout is that of ``CompileTimeHbmOom`` (https://openxla.org/xla/errors/error_1000). Of the total, what
    is neither reserved, nor the program's, nor arguments, are outputs with memory of their own.
    """
    space = report.hbm
    if space.free_bytes >= 0:
        return ""
    used, capacity = xla_size(space.needed_bytes), xla_size(space.capacity_bytes)
    arguments = report.use.argument_bytes
    program = space.profile.heap_bytes
    lines = [
        f"RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used {used} of "
        f"{capacity} hbm. Exceeded hbm capacity by {xla_size(-space.free_bytes)}.",
        "",
        f"Total hbm usage >= {xla_size(space.reserved_bytes + space.needed_bytes)}:",
        f"    reserved  {xla_size(space.reserved_bytes):>15}",
        f"    program   {xla_size(program):>15}",
        f"    arguments {xla_size(arguments):>15}",
        "",
        f"Output size {xla_size(report.use.output_bytes)}; shares {xla_size(report.alias_bytes)} with arguments.",
        "",
        *_requirement(space.profile),
    ]
    return "\n".join(lines)


def _requirement(profile: MemoryProfile) -> Iterator[str]:
    """Yield the part of XLA's message about the program's own memory and its largest buffers."""
    alive = [buffer for buffer in profile.alive_at(profile.peak_position) if not buffer.within]
    temporaries = [buffer for buffer in alive if buffer.kind == "temporary"]
    padded = sum(buffer.n_bytes for buffer in temporaries)
    unpadded = padded - sum(buffer.padding_bytes for buffer in temporaries)
    holes = profile.fragmentation_bytes
    share = unpadded / padded if padded else 1.0
    yield f"Program hbm requirement {xla_size(profile.heap_bytes)}:"
    yield (
        f"    HLO temp {xla_size(profile.heap_bytes):>16} ({share:.1%} utilization: Unpadded ({xla_size(unpadded)}) "
        f"Padded ({xla_size(padded)}), {holes / max(1, profile.heap_bytes):.1%} fragmentation ({xla_size(holes)}))"
    )
    yield ""
    yield "  Largest program allocations in hbm:"
    yield from _allocations(temporaries[:_SHOWN_ALLOCATIONS], "HLO temp")
    yield ""
    yield "  Largest program arguments and outputs in hbm:"
    others = [buffer for buffer in alive if buffer.kind in ("argument", "output")]
    yield from _allocations(others[:_SHOWN_ALLOCATIONS], "")


def _allocations(buffers: Iterable[Buffer], kind: str) -> Iterator[str]:
    """Yield XLA's paragraphs about buffers."""
    for number, buffer in enumerate(buffers, start=1):
        yield ""
        yield f"  {number}. Size: {xla_size(buffer.n_bytes)}"
        if buffer.op_name:
            file, _, line = buffer.source.rpartition(":")
            place = f' source_file="{file}" source_line={line}' if file else ""
            yield f'     Operator: op_name="{buffer.op_name}"{place}'
        if buffer.shape:
            yield f"     Shape: {buffer.shape}"
        yield f"     Unpadded size: {xla_size(buffer.unpadded_bytes or buffer.n_bytes)}"
        if buffer.padding_bytes > 0:
            extra = xla_size(buffer.padding_bytes)
            yield f"     Extra memory due to padding: {extra} ({buffer.expansion:.1f}x expansion)"
        yield f"     XLA label: {buffer.name} = {buffer.opcode}"
        yield f"     Allocation type: {kind or buffer.kind}"
        yield "     =========================="


def xla_size(n_bytes: int) -> str:
    """Return bytes as XLA's messages write them: ``512B``, ``46.5K``, ``258.00M``, ``20.12G``."""
    if n_bytes < 1024:
        return f"{n_bytes}B"
    if n_bytes < 2**20:
        return f"{n_bytes / 1024:.1f}K"
    return f"{n_bytes / 2**20:.2f}M" if n_bytes < 2**30 else f"{n_bytes / 2**30:.2f}G"
