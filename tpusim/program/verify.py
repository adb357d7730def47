"""What keeps a lowered program from running: checks for files that were written or edited by hand; and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from math import isclose, prod
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import structs

from tpusim.errors import ConfigError, ProgramError, did_you_mean
from tpusim.hardware.pod import parse_topology
from tpusim.hardware.units import SCALAR
from tpusim.limits import COUNT, DEVICES, POSITIONS, shown
from tpusim.program.feed import Feed
from tpusim.program.module import FORMAT, Program
from tpusim.program.steps import COLLECTIVE_KINDS, SCALAR_BYTES, Branch, Collective, Copy, Kernel, Loop, Step
from tpusim.program.work import Work, sum_work, unit_fault
from tpusim.shapes.dtype import DTYPES

_OF_PRODUCTS = "streamed_rows", "weight_rows", "results", "parked"
_LEAST, _MOST = 1e-30, 1e24
"""No amount of anything is smaller, but for nothing, or larger; beyond them arithmetic on floats loses itself."""


def verify_program(program: Program) -> None:
    """Raise ProgramError if a program's steps cannot run: a format, name, count, type or branch that does not exist."""
    if program.format != FORMAT:
        raise ProgramError(f"expected the format {FORMAT!r}, found {program.format!r}")
    _verify_names(program)
    if wrong := next(_misfit_numbers(program), ""):
        raise ProgramError(wrong)
    if fault := next(chain(_device_faults(program), _buffer_faults(program)), ""):
        raise ProgramError(fault)
    for step in program.every_step:
        check = _CHECKS.get(type(step))
        if wrong := next(chain(_misfit_numbers(step), check(step) if check else ()), ""):
            raise ProgramError(f"{step.name!r}: {wrong}")
    if lost := _never_needed(program):
        raise ProgramError(f"{lost!r}: expected a step that needs it, such as a Wait, found none")


def verify_once(program: Program) -> None:
    """Verify a program whose maker is not known, unless that was done."""
    # Beside all else that is computed once of a program.
    known = vars(program)
    if "is_verified" not in known:
        verify_program(program)
        known["is_verified"] = True


def _device_faults(program: Program) -> Iterator[str]:
    """Yield what is wrong with how many devices there are, with their order, or with the slice that they are of."""
    if fault := DEVICES.fault(program.devices_needed):
        yield fault
    if program.device_order and sorted(program.device_order) != list(range(program.devices_needed)):
        found = f"{program.device_order!r:.200}"
        yield f"device_order: expected each of {program.devices_needed} devices once, found {found}"
    if program.topology:
        try:
            parse_topology(program.topology)
        except ConfigError as error:
            yield str(error)


def _buffer_faults(program: Program) -> Iterator[str]:
    """Yield what is wrong with the bytes of outputs over arguments, and with where buffers begin and end."""
    if program.alias_bytes > min(program.argument_bytes, program.output_bytes):
        found = f"{program.alias_bytes} of {program.argument_bytes} and {program.output_bytes}"
        yield f"alias_bytes: expected no more than arguments and outputs have, found {found}"
    # What lowering has planned is not made before somebody asks for it.
    if not isinstance(program.buffers, tuple):
        return
    most = len(program.schedule) or POSITIONS.most
    for number, buffer in enumerate(program.buffers):
        # What is there at the end lives beyond the last one.
        if not buffer.first <= buffer.last <= most:
            found = f"{buffer.first} to {buffer.last}"
            yield f"buffers[{number}]: expected positions of the schedule, at most {most}, found {found}"


def _never_needed(program: Program) -> str:
    """Return the name of a step beside the core that no other one waits for, if there is one: a run may end before."""
    needed = {name for step in program.every_step for name in step.needs}
    beside = (step for step in program.every_step if isinstance(step, Copy) or getattr(step, "is_async", False))
    return next((step.name for step in beside if step.name not in needed), "")


def number_fault(items: Sequence[msgspec.Struct]) -> str:
    """Return what is wrong with the numbers of steps or their parts, whatever is inside: nothing if all can be."""
    return next((fault for item in items for fault in _misfit_numbers(item)), "")


def _verify_names(program: Program) -> None:
    """Refuse two steps of one list by the same name, and a need of what no step of the program is called."""
    known = {step.name for step in program.every_step}
    for listed in program.every_list:
        twice = next((name for name, count in Counter(step.name for step in listed).items() if count > 1), None)
        if twice is not None:
            raise ProgramError(f"{twice!r}: expected a name of its own for each step, found two by this one")
        for step in listed:
            for name in step.needs:
                if name not in known:
                    hint = did_you_mean(name, known)
                    raise ProgramError(f"{step.name!r}: needs: expected the name of a step, found {name!r}{hint}")


def _branch_faults(step: Branch) -> Iterator[str]:
    if not 0 <= step.taken < max(1, len(step.branches)):
        yield f"expected taken to be one of {len(step.branches)} branches, found {step.taken}"
    yield from _choice_faults(step, max(0, len(step.branches) - 1))


def _choice_faults(step: Branch | Loop, most: float = _MOST) -> Iterator[str]:
    for choice in step.choices:
        if not choice.values or not all(0 <= value <= most for value in choice.values):
            yield f"choices: expected numbers from 0 to {most:.4g}, found {list(choice.values)}"


def _collective_faults(step: Collective) -> Iterator[str]:
    if step.kind not in COLLECTIVE_KINDS:
        hint = did_you_mean(step.kind, COLLECTIVE_KINDS)
        yield f"kind: expected one of {', '.join(sorted(COLLECTIVE_KINDS))}, found {step.kind!r}{hint}"
    if step.shares and len(step.shares) != step.group_size:
        yield f"shares: expected one for each of {step.group_size} devices of a group, found {len(step.shares)}"
    if step.group_size < 1 or step.group_count < 1:
        yield f"expected groups of at least one device, found {step.group_count} of {step.group_size}"
    if any(not group or min(group) < 0 for group in (*step.groups, *step.pairs)):
        yield "groups: expected in each at least one device, counted from 0"


def _kernel_faults(step: Kernel) -> Iterator[str]:
    yield from _tile_faults(step)
    stages = {f"stages[{n}]": stage for n, stage in enumerate(step.stages)}
    parts = {f"parts[{n}].stages[{m}]": work for n, part in enumerate(step.parts) for m, work in enumerate(part.stages)}
    yield from chain.from_iterable(_work_faults(*each) for each in {"work": step.work, **stages, **parts}.items())
    if step.stages and not _is_sum(step.work, step.stages):
        yield "stages: expected what makes up the work together"
    if step.parts and not _is_sum(step.work, list(_mean_stages(step))):
        yield "parts: expected what makes up the work together, as often as the classes run it"
    if step.scalar and (step.work.matmuls or step.work.ops.keys() - {SCALAR}):
        yield "work: expected instructions of the scalar core alone in a scalar kernel"
    if step.flops and not (step.work.matmuls or step.work.ops):
        yield f"work: expected some for {step.flops:.4g} FLOP, found none"
    if step.product_flops > step.flops * (1 + 1e-6):
        yield f"product_flops: expected no more than the {step.flops:.4g} FLOP of all, found {step.product_flops:.4g}"
    if step.flops_type not in DTYPES:
        yield _no_type("flops_type", step.flops_type)
    # The roof of its products is that of the type.
    multiplied = {matmul.operand_type for matmul in step.work.matmuls}
    if step.product_flops and multiplied and step.flops_type not in multiplied:
        yield f"flops_type: expected that of its matmuls, {', '.join(sorted(multiplied))}, found {step.flops_type!r}"
    if step.type_shares:
        yield from _share_faults(step, multiplied)


def _share_faults(step: Kernel, multiplied: set[str]) -> Iterator[str]:
    """Yield what is wrong with the shares of the types of a kernel's products."""
    for name in step.type_shares:
        if name not in DTYPES:
            yield _no_type("type_shares", name)
        elif multiplied and name not in multiplied:
            yield f"type_shares: expected types of its matmuls, {', '.join(sorted(multiplied))}, found {name!r}"
    if step.flops_type not in step.type_shares:
        yield f"type_shares: expected one of its flops_type, {step.flops_type!r}, found none"
    if not isclose(together := sum(step.type_shares.values()), 1.0, rel_tol=1e-6):
        yield f"type_shares: expected shares that add up to 1, found {together:.4g}"


def _mean_stages(step: Kernel) -> Iterator[Work]:
    """Yield the stages of a kernel's parts, each as often as a tile runs it on the mean of all classes."""
    for number, part in enumerate(step.parts):
        share = sum(one.tiles * one.runs[number] for one in step.classes) / step.tiles
        yield from (work * share for work in part.stages)


def _tile_faults(step: Kernel) -> Iterator[str]:
    for stream in step.streams:
        if stream.fetches < 1:
            yield f"stream {stream.operand!r}: expected at least one fetch, found {stream.fetches}"
        # Its time has none for what it moves.
        if step.scalar and stream.block_bytes * stream.fetches > SCALAR_BYTES:
            yield f"stream {stream.operand!r}: expected a scalar, found {stream.block_bytes:,.0f} bytes"
    if step.tiles < 1 or step.cores < 1:
        yield f"expected at least one tile and one core, found {step.tiles} and {step.cores}"
    if any(len(one.runs) != len(step.parts) or len(one.moves) > len(step.streams) for one in step.classes):
        yield f"classes: expected runs of all {len(step.parts)} parts, and moves of at most {len(step.streams)} streams"
    if step.loops and prod(loop.trips for loop in step.loops) != step.tiles:
        yield f"expected loops whose trips multiply to {step.tiles} tiles, found {[x.trips for x in step.loops]}"
    if step.classes and (tiles := sum(one.tiles for one in step.classes)) != step.tiles:
        yield f"classes: expected {step.tiles} tiles in all, found {tiles}"


def _work_faults(place: str, work: Work) -> Iterator[str]:
    if fault := unit_fault(work):
        yield f"{place}.{fault}"
    for number, matmul in enumerate(work.matmuls):
        if matmul.operand_type not in DTYPES:
            yield _no_type(f"{place}.matmuls[{number}].operand_type", matmul.operand_type)


def _no_type(place: str, name: str) -> str:
    return f"{place}: expected an element type such as bf16, found {name!r}{did_you_mean(name, DTYPES)}"


def _is_sum(work: Work, stages: Sequence[Work]) -> bool:
    """Return whether a kernel's stages have the operations of its work, and the rows and results of its products."""
    whole, together = (
        each.ops | {name: sum(getattr(matmul, name) for matmul in each.matmuls) for name in _OF_PRODUCTS}
        for each in (work, sum_work(stages))
    )
    # Sums of shares round.
    return all(isclose(whole.get(k, 0.0), together.get(k, 0.0), rel_tol=1e-6) for k in whole | together)


_CHECKS: dict[type, Callable[[Any], Iterator[str]]] = {
    Branch: _branch_faults,
    Collective: _collective_faults,
    Kernel: _kernel_faults,
    Loop: _choice_faults,
}
"""What to ask of a kind of step beside its numbers."""


def _misfit_numbers(value: Any, place: str = "") -> Iterator[str]:
    """Yield what is wrong with the numbers of a program or a step: none may be negative or beyond all bounds."""
    kinds = _plain_fields(value.__class__)
    for name in value.__struct_fields__:
        found, where, kind = getattr(value, name), f"{place}{name}", kinds.get(name)
        # From a file they are what they have to be, but Python lets all stand there.
        if (kind in (int, float) or isinstance(found, (int, float))) and (misfit := _misfit(found)):
            yield f"{where}: {misfit}"
        elif kind is int and isinstance(found, float):
            yield f"{where}: expected a whole number, found {found}"
        elif isinstance(kind, tuple) and not (isinstance(found, str) and found in kind):
            yield f"{where}: expected one of {', '.join(map(repr, kind))}, found {found!r:.80}"
        elif isinstance(found, msgspec.Struct):
            yield from _misfit_numbers(found, f"{where}.")
        # Figures of a chip are checked where it is made of them: some are words.
        elif isinstance(found, dict) and where != "figures":
            yield from (f"{where}.{key}: {misfit}" for key, number in found.items() if (misfit := _misfit(number)))
        elif isinstance(found, tuple):
            yield from _misfit_items(found, where)


def _misfit_items(items: tuple[Any, ...], place: str) -> Iterator[str]:
    """Yield what is wrong with numbers in a row, and with those of structs in a row."""
    for number, item in enumerate(items):
        # Steps inside a step are verified by themselves.
        if isinstance(item, msgspec.Struct) and not isinstance(item, Step):
            yield from _misfit_numbers(item, f"{place}[{number}].")
        elif isinstance(item, (int, float)) and (misfit := _misfit(item)):
            yield f"{place}[{number}]: {misfit}"


@cache
def _plain_fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the fields of a struct that hold numbers, with their types, and those that hold one of some words."""
    found = {
        field.name: get_args(field.type) if get_origin(field.type) is Literal else field.type
        for field in structs.fields(kind)
    }
    return {name: one for name, one in found.items() if one in (int, float) or isinstance(one, tuple)}


def _misfit(number: Any) -> str:
    """Return what is wrong with a number, nothing if it may be."""
    if not isinstance(number, (int, float)):
        return f"expected an int or a float, found {number!r:.80}"
    # Whole numbers travel as 64 bits.
    most = COUNT.most if isinstance(number, int) else _MOST
    if number == 0 or _LEAST <= number <= most:
        return ""
    least = f"{_LEAST:.4g}" if 0 < number < _LEAST else "0"
    return f"expected a number from {least} to {most:.4g}, found {shown(number)}"


def verify_blocks(program: Program, vmem_bytes: int) -> None:
    """Raise ProgramError if a kernel of a program that was written by hand has blocks larger than VMEM."""
    # The compiler has made sure of it for its own kernels; where the text states no tiles, ours are an estimate.
    for step in program.every_step if not program.schedule else ():
        if isinstance(step, Kernel) and step.vmem_bytes > vmem_bytes:
            raise ProgramError(
                f"{program.name}: {step.name!r}: expected blocks that fit into {vmem_bytes} bytes of VMEM, found "
                f"{step.vmem_bytes:.0f} (two of each that changes from tile to tile): cut it into more tiles"
            )


def verify_products(program: Program, macs: int) -> None:
    """Raise ProgramError if a kernel's arrays, of ``macs`` multiply-accumulates a cycle, do not all that it asks for.

    Then its rows were counted for larger arrays, or by hand, and its time would be below its own roofline.
    """
    for step in program.every_step:
        if not isinstance(step, Kernel) or not step.work.matmuls:
            continue
        for name, share in (step.type_shares or {"": 1.0}).items():
            own = [matmul for matmul in step.work.matmuls if name in ("", matmul.operand_type)]
            done = 2.0 * macs * step.tiles * sum(one.streamed_rows * one.passes for one in own)
            asked, of_type = step.product_flops * share, f" of {name}" if name else ""
            # Rows of a tile are shares, which round.
            if done < asked * (1 - 1e-6):
                raise ProgramError(
                    f"{program.name}: {step.name!r}: expected streamed_rows for {asked:.4g} FLOP{of_type}, found "
                    f"those of {done:.4g} on arrays of {macs} multipliers: lower the program for this chip"
                )


def run_warnings(programs: Sequence[Program], infeed: Feed | None = None, outfeed: Feed | None = None) -> list[str]:
    """Return the warnings of programs that run side by side: open channels, and paces of the host without a queue."""
    ends = dict.fromkeys((step.channel_id, step.is_send) for program in programs for step in program.channel_ends)
    where = "this program" if len(programs) == 1 else f"the {len(programs)} programs of this run"
    fed = {step.to_host for program in programs for step in program.feeds}
    paces = (("infeed", infeed, False), ("outfeed", outfeed, True))
    return [
        *(
            f"channel {channel}: its other end is not in {where}: it is taken to be always ready"
            for channel, is_send in ends
            if (channel, not is_send) not in ends
        ),
        *(
            f"a pace of the {word} was given, but no program of this run has an {word}: it changes nothing"
            for word, pace, to_host in paces
            if pace is not None and to_host not in fed
        ),
    ]
