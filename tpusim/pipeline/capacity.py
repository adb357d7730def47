"""What does not fit into a chip's memories is refused: no time of it would be one that the chip could take."""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.analysis.memory import Overflow, memory_profile, memory_use, overflows
from tpusim.errors import CapacityError
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import UNITS
from tpusim.program.module import Program

_SHOWN_BUFFERS = 5
_MIB = 2**20


def check_capacity(program: Program, chip: Chip, schedules: Sequence[str] = ()) -> None:
    """Raise CapacityError, with the largest buffers, if a program needs more of a memory than ``chip`` has.

    ``schedules`` are those under which it could be tried instead.
    """
    found = overflows(memory_use(program), chip)
    if not found:
        return
    what = [f"{program.name} on {chip.name}: {found[0]}", *map(str, found[1:])]
    buffers = [line for overflow in found for line in _largest(program, overflow)]
    options = ", ".join(f"--schedule {schedule}" for schedule in schedules)
    anew = f"choose tiles and places for this chip ({options}), " if schedules else ""
    todo = f"{anew}take a chip with more, or --allow-overflow to run it as if it had (allow_overflow=True in Python)"
    raise CapacityError("\n".join((*what, *buffers, todo)))


def _largest(program: Program, overflow: Overflow) -> list[str]:
    """Return the largest buffers of one memory, a line each, where most of it is in use."""
    profile = memory_profile(program, overflow.space)
    alive = profile.alive_at(profile.peak_position)
    where = f" at {profile.peak_instruction}" if profile.peak_instruction else ""
    head = f"the largest of {len(alive)} buffers in {UNITS[overflow.space].label}{where}:"
    shown = alive[:_SHOWN_BUFFERS]
    return (
        [
            head,
            *(
                f"  {b.n_bytes / _MIB:9.2f} MiB  {b.name}  {b.shape or 'blocks of its tiles'}  ({b.kind})"
                for b in shown
            ),
        ]
        if shown
        else []
    )
