"""Arrays that could come into VMEM while the core computes, if there were room for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from msgspec import structs

from tpusim.advice.trials import LEAST_SHARE, Case, Trial, advises
from tpusim.hardware.units import HBM, VMEM
from tpusim.program.edit import with_steps
from tpusim.program.steps import AnyStep, Copy, Kernel, Steps
from tpusim.program.work import Stream


class _Ahead(NamedTuple):
    """A stream of a kernel that could come in beside the kernel before it."""

    before: Kernel
    kernel: Kernel
    stream: Stream


@advises("prefetch")
def prefetch(case: Case) -> Iterator[Trial]:
    """Propose to make room for what would come in a kernel ahead, but does not fit beside what lies in VMEM."""
    room = case.chip.vmem.capacity_bytes - case.result.summary.memory.peak_vmem_bytes
    found = [ahead for steps in case.program.every_list for ahead in _ahead(steps) if ahead.stream.total_bytes > room]
    found = [one for one in found if one.stream.total_bytes <= case.chip.vmem.capacity_bytes]
    if case.share(*(ahead.kernel for ahead in found)) < LEAST_SHARE:
        return
    most = max(ahead.stream.total_bytes for ahead in found)
    yield Trial(
        what=f"{len(found)} arrays of up to {_mib(most)} could come in ahead, but VMEM has {_mib(max(0, room))} free",
        change="make room: a lower xla_tpu_scoped_vmem_limit_kib, smaller batches or fewer values alive at once",
        alternative=with_steps(case.program, partial(_early, found=found)),
        **case.places(ahead.kernel for ahead in found),
    )


def _mib(n_bytes: float) -> str:
    return f"{n_bytes / (1 << 20):,.1f} MiB"


def _ahead(steps: Steps) -> Iterator[_Ahead]:
    """Yield what kernels read of HBM once, and the kernel before them does not make."""
    kernels = [step for step in steps if isinstance(step, Kernel) and not step.scalar]
    for before, kernel in pairwise(kernels):
        made = {stream.operand for stream in before.streams if stream.is_output} | {before.name}
        for stream in kernel.streams:
            if stream.space == HBM and not stream.is_output and stream.operand not in made and kernel.tiles > 1:
                yield _Ahead(before, kernel, stream)


def _early(steps: Steps, found: list[_Ahead]) -> Steps:
    """Return steps in which some arrays come in beside the kernel before the one that reads them."""
    new: list[AnyStep] = []
    for step in steps:
        new += [_copy(ahead) for ahead in found if ahead.before is step]
        own = [ahead for ahead in found if ahead.kernel is step]
        new.append(_from_vmem(step, own) if isinstance(step, Kernel) and own else step)
    return tuple(new)


def _copy(ahead: _Ahead) -> Copy:
    return Copy(name=_name(ahead), opcode="copy-start", n_bytes=ahead.stream.total_bytes)


def _name(ahead: _Ahead) -> str:
    return f"{ahead.stream.operand}-ahead-of-{ahead.kernel.name}"


def _from_vmem(kernel: Kernel, own: list[_Ahead]) -> Kernel:
    early = [ahead.stream for ahead in own]
    streams = tuple(structs.replace(s, space=VMEM) if any(s is one for one in early) else s for s in kernel.streams)
    return structs.replace(kernel, streams=streams, needs=(*kernel.needs, *map(_name, own)))
