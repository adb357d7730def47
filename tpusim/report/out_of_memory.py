"""What XLA says about a program that needs more HBM than there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tpusim.analysis.memory import MemoryProfile, MemoryReport
from tpusim.program.buffers import Buffer

# As many as XLA lists.
_SHOWN_ALLOCATIONS = 20


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
        f"Output size {xla_size(report.use.output_bytes)}; shares {xla_size(report.use.alias_bytes)} with arguments.",
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
