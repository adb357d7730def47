"""Which chip a program runs on: what the caller says, else the slice, else the file's name or the facts beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tpusim.errors import ConfigError
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import chip_names, load_chip, override_chip, resolve_chip_name
from tpusim.hardware.pod import Topology
from tpusim.ir.module import Module
from tpusim.program.module import Program

_NAME_PART = re.compile(r"[._]")
_MEGACORE = "-megacore"


def choose_chip(
    program: Module | Program,
    path: str,
    chip: Chip | str | None,
    topology: Topology | None,
    overrides: Mapping[str, Any] | None,
) -> Chip:
    """Return the chip to run on: the caller's, else that of the slice, else the one that the program was made for.

    ``path`` is the file that the program came from, or empty.
    """
    if isinstance(chip, Chip):
        return override_chip(chip, overrides) if overrides else chip
    if chip:
        return load_chip(chip, overrides)
    if topology is not None and topology.chip:
        return load_chip(_as_programmed(resolve_chip_name(topology.chip), program), overrides)
    return load_chip(program.chip if isinstance(program, Program) else find_chip_name(path, program), overrides)


def find_chip_name(path: str | Path, module: Module | None = None) -> str:
    """Return the chip that the ``.json`` beside a program, or else the program's name, says it was compiled for.

    A v4 ``module`` that splits its kernels over two cores is for the megacore. Without a ``path`` the module's own name
    counts. Raises ConfigError if neither says.
    """
    place = Path(path or (module.name if module else ""))
    # What somebody has written down goes before what a name suggests.
    stated = _stated_chip(place) or _named_chip(place.name)
    if stated is None:
        raise ConfigError(f"{place}: neither its name nor a .json beside it says which chip it is for: use --chip")
    return _as_programmed(stated, module)


def _as_programmed(name: str, program: Module | Program | None) -> str:
    """Return a chip by the name of the way to program it: v4 is one core, or both as a megacore."""
    both = f"{name}{_MEGACORE}"
    return both if program is not None and both in chip_names() and _splits_kernels(program) else name


def _splits_kernels(program: Module | Program) -> bool:
    """Return whether kernels of a program are split over two cores, which only they can tell."""
    if isinstance(program, Program):
        return program.chip.endswith(_MEGACORE)
    instructions = (instruction for computation in program.computations for instruction in computation)
    return any(instruction.backend_config.megacore_split_dim is not None for instruction in instructions)


def check_topology(topology: Topology | None, programs: Sequence[Program], chip: Chip) -> None:
    """Refuse a slice that programs side by side do not fill or fit on, or that the chip's links cannot form."""
    if topology is None:
        return
    # A slice of v4 may be programmed either way.
    if topology.chip and resolve_chip_name(topology.chip) not in (chip.name, chip.name.removesuffix(_MEGACORE)):
        raise ConfigError(f"topology: expected a slice of {chip.name}, found one of {topology.chip!r}")
    if len(topology.sizes) > max(1, chip.ici.dimensions):
        raise ConfigError(f"topology: {chip.name} has links along {chip.ici.dimensions} axes, found {topology.sizes}")
    devices, needed = topology.chip_count * chip.devices_per_chip, sum(program.device_count for program in programs)
    of_whom = "the program is" if len(programs) == 1 else f"the {len(programs)} programs of this run are"
    if needed > devices:
        raise ConfigError(f"topology: {of_whom} for {needed} devices, this slice has {devices}")
    # A program spreads over a larger slice by whole copies of its groups; the rest would have nobody to talk to.
    if len(programs) == 1 and devices % needed:
        raise ConfigError(
            f"topology: {of_whom} for {needed} devices, this slice has {devices}: expected as many, or a multiple"
        )


def _stated_chip(path: Path) -> str | None:
    """Return the chip in the ``.json`` beside a program, or None."""
    beside = path.with_name(re.sub(r"\.hlo(\.txt)?(\.gz)?$", "", path.name) + ".json")
    try:
        facts = json.loads(beside.read_text())
    # No file there, or some other tool has one of that name: the name of the program has to tell.
    except (OSError, ValueError):
        return None
    stated = facts.get("chip") if isinstance(facts, dict) else None
    return resolve_chip_name(stated) if isinstance(stated, str) else None


def _named_chip(file_name: str) -> str | None:
    """Return the chip named last in a file's name (``NAME.v5e.hlo.txt.gz``, ``NAME.v5e_2x4.hlo.txt``), or None."""
    # Backwards, since what comes before is the name of the model, which may hold anything.
    for part in reversed(_NAME_PART.split(file_name)):
        name = _try_chip(part)
        if name:
            return name
    return None


def _try_chip(word: str) -> str | None:
    """Return the chip that a word names, or None."""
    try:
        return resolve_chip_name(word)
    except ConfigError:
        return None


def for_chip(program: Program, chip: Chip) -> Program:
    """Return a lowered program for a run on a chip, with a warning if it was cut up for another."""
    if program.chip == chip.name or resolve_chip_name(program.chip) == chip.name:
        return program
    warning = f"lowered for {program.chip}, run on {chip.name}: its tiles and its work are still those of the former"
    return msgspec.structs.replace(program, warnings=(*program.warnings, warning))
