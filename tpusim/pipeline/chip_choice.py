"""Which chip a program runs on: what the caller says, else the slice, else the file's name or the facts beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from warnings import warn

import msgspec

from tpusim.errors import ConfigError, UnsupportedError
from tpusim.files import is_file, parse_json, read_text
from tpusim.hardware.chip import Chip
from tpusim.hardware.fields import TEXT_KEYS
from tpusim.hardware.load import changed_at, changed_figures, chip_names, load_chip, override_chip, resolve_chip_name
from tpusim.hardware.pod import Topology, default_sizes
from tpusim.ir.module import Module
from tpusim.machine.placement import stated_slice
from tpusim.program.device_order import moved_to
from tpusim.program.edit import with_steps
from tpusim.program.module import Program
from tpusim.program.provenance import MEGACORE, Provenance
from tpusim.program.steps import AnyStep, Kernel
from tpusim.semantics.provenance import read_provenance

_NAME_PART = re.compile(r"[._]")
_ENDING = re.compile(r"\.(hlo(\.txt|\.pb)?|pb|(stablehlo\.)?mlir(bc)?)(\.gz)?$")
_PROCESSORS = {"cpu": "CPUs", "gpu": "GPUs", "xla": "another processor"}
_VERSION = re.compile(r"libtpu \d[\w.]*\w")


def choose_chip(
    program: Module | Program,
    made_by: Provenance | None,
    *,
    chip: Chip | str | None = None,
    topology: Topology | None = None,
    overrides: Mapping[str, Any] | None = None,
    file: str = "",
) -> Chip:
    """Return the chip to run on: the caller's, else that of the slice, else the one that the program was made for.

    ``file`` is what messages call a program whose file it does not know itself. Raises ConfigError if nothing says
    which chip, or if the program was made for one that is in the caller's files alone.
    """
    if isinstance(chip, Chip):
        return override_chip(chip, {} if overrides is None else overrides)
    # The command line gives an empty text for none.
    if chip is not None and chip != "":
        return load_chip(chip, overrides)
    possible = made_by.possible if made_by else (program.chip,) if isinstance(program, Program) else ()
    if topology is not None and topology.chip:
        name = _as_programmed(resolve_chip_name(topology.chip), possible)
    elif isinstance(program, Program):
        name = program.chip
    else:
        name = find_chip_name(program, made_by or provenance_of(program))
    _require_shipped(name, file or _place(program))
    if not isinstance(program, Program) or not program.figures or not _is_called(program.chip, name):
        return load_chip(name, overrides)
    own = load_chip(name, program.figures)
    return override_chip(own, {} if overrides is None else overrides)


def _place(program: Module | Program) -> str:
    """Return what messages call a program: its file where that is known, else its name."""
    return program.source.name if isinstance(program, Module) and program.source else program.name


def _require_shipped(name: str, place: str) -> None:
    """Refuse the name of a chip that a program was made for if its figures stand in a file of the caller's own."""
    try:
        resolve_chip_name(name)
    except ConfigError as error:
        raise ConfigError(
            f"{place}: made for a chip of another name than those that are shipped: give its file, --chip FILE.toml "
            f"({error})"
        ) from error


def find_chip_name(module: Module, made_by: Provenance) -> str:
    """Return the chip that a module was compiled for; raise ConfigError if nothing tells.

    What is stated goes before what the text shows, and the report says if they do not agree.
    """
    name = _as_programmed(made_by.stated, made_by.possible) or made_by.chip
    if not name:
        found = "neither its name nor a .json beside it says which chip it is for: use --chip"
        raise ConfigError(f"{_place(module)}: {found}")
    return name


def provenance_of(module: Module) -> Provenance:
    """Return what made a module, by its text, by the name of its file, and by the ``.json`` beside it."""
    place = Path(_place(module))
    facts = _facts_of(facts_beside(place))
    version = _VERSION.search(json.dumps(facts))
    # What was written down goes before what a name suggests.
    stated = facts["chip"] if "chip" in facts else named_chip(place.name)
    return read_provenance(module, stated, version[0] if version else "")


def facts_beside(program: Path) -> Path:
    """Return the name of the file that may stand beside a program, and say what made it."""
    # The root and "." have no name that another one could stand for.
    return program.parent / f"{_ENDING.sub('', program.name)}.json"


def _facts_of(path: Path) -> dict[str, Any]:
    """Return what a file beside a program says, under ``chip`` a chip; nothing where there is none.

    One that cannot be read is told of: some other tool may have written it, or its chip was to be the program's.
    """
    if not is_file(path):
        return {}
    try:
        facts = parse_json(read_text(path, "cannot be read"))
    except (ConfigError, ValueError) as error:
        warn(f"{path}: not read, though it may say the chip: {error}", stacklevel=2)
        return {}
    if not isinstance(facts, dict) or "chip" not in facts:
        return facts if isinstance(facts, dict) else {}
    if not isinstance(facts["chip"], str):
        raise ConfigError(f"{path}: chip: expected the name of a chip, found {facts['chip']!r}")
    try:
        return facts | {"chip": resolve_chip_name(facts["chip"])}
    except ConfigError as error:
        raise ConfigError(f"{path}: chip: {error}") from error


def _as_programmed(name: str, possible: Sequence[str]) -> str:
    """Return a chip by the way to program it: v4 is one core or both, and only a program's kernels tell which."""
    both = f"{name}{MEGACORE}"
    return both if both in possible and name not in possible else name


def check_compiler(program: Module | Program, made_by: Provenance | None) -> None:
    """Refuse what XLA's backend for another processor has scheduled: no TPU would run its fusions."""
    if made_by is None or made_by.compiler not in _PROCESSORS:
        return
    raise UnsupportedError(
        f"{_place(program)}: expected a program for a TPU or one that nobody has compiled yet, found one that XLA "
        f"compiled for {_PROCESSORS[made_by.compiler]}: a TPU would run other fusions. Give what the front end made "
        "(tpusim.jax.lower_for, StableHLO, the dump before_optimizations), or compile it for a TPU "
        "(tpusim.jax.compile_for)"
    )


def check_topology(topology: Topology | None, programs: Sequence[Program], chip: Chip) -> None:
    """Refuse a slice that programs side by side do not fill or fit on, or that the chip's links cannot form."""
    if topology is None:
        return
    # A slice of v4 may be programmed either way.
    if topology.chip and resolve_chip_name(topology.chip) not in (chip.name, chip.name.removesuffix(MEGACORE)):
        raise ConfigError(f"topology: expected a slice of {chip.name}, found one of {topology.chip!r}")
    if len(topology.sizes) > max(1, chip.ici.dimensions):
        raise ConfigError(f"topology: {chip.name} has links along {chip.ici.dimensions} axes, found {topology.sizes}")
    devices, needed = topology.chip_count * chip.devices_per_chip, sum(program.device_count for program in programs)
    of_whom = "the program is" if len(programs) == 1 else f"the {len(programs)} programs of this run are"
    # A program spreads over a larger slice by whole copies of its groups; devices beyond them would have no partners.
    if needed > devices or (len(programs) == 1 and devices % needed):
        wanted = f"expected as many, or {'a multiple' if len(programs) == 1 else 'more'}{_such_as(needed, chip)}"
        raise ConfigError(f"topology: {of_whom} for {needed} devices, this slice has {devices}: {wanted}")


def _such_as(devices: int, chip: Chip) -> str:
    """Return the slice of a chip with so many devices, by both its names; empty where there is none."""
    chips, rest = divmod(devices, chip.devices_per_chip)
    if rest or chips > chip.pod.chips:
        return ""
    counted = chip.pod.counted_per_chip
    # In the other name of a slice, where it is not what one would guess.
    other = f", which is {chip.name}-{chips * counted}," if counted > 1 else ""
    return f", as {chip.name}:{'x'.join(map(str, default_sizes(chips, chip)))}{other} has"


def on_slice(program: Program, chip: Chip, topology: Topology | None) -> Program:
    """Return a program for a run on a slice: the order of its devices is known of the one it names, or of any."""
    if not program.device_order or not program.topology:
        return program
    stated = stated_slice(program, chip)
    if stated is not None and (topology is None or _has_copies_of(stated, topology, chip)):
        return program
    listed = moved_to(program, range(len(program.device_order)))
    return msgspec.structs.replace(listed, device_order=())


def _has_copies_of(stated: Topology, topology: Topology, chip: Chip) -> bool:
    """Return whether a topology is the slices that a program states, once or several times."""
    stated_sizes, sizes = ((*one.sizes, *(1,) * (chip.ici.dimensions - len(one.sizes))) for one in (stated, topology))
    return stated_sizes == sizes and topology.slices % stated.slices == 0


def named_chip(file_name: str) -> str:
    """Return the chip named last in a file's name (``NAME.v5e.hlo.txt.gz``, ``NAME.v5e_2x4.hlo.txt``), or nothing."""
    # Backwards, since what comes before is the name of the model, which may hold anything.
    for part in reversed(_NAME_PART.split(file_name)):
        with suppress(ConfigError):
            return resolve_chip_name(part)
    return ""


def for_chip(program: Program, chip: Chip) -> Program:
    """Return a lowered program for a run on a chip, with a warning if it was cut up for another.

    What more cores were to share runs on those that there are.
    """
    other = _cut_otherwise(program, chip)
    if not other:
        return program
    own = _with_changes(program.chip, program.figures)
    warning = f"lowered for {own}, run on {other}: its tiles and its work are still those of the former"
    return msgspec.structs.replace(
        with_steps(program, lambda steps: tuple(_on_cores(step, chip.cores_per_device) for step in steps)),
        warnings=(*program.warnings, warning),
    )


def with_figures(program: Program, chip: Chip, read: Iterable[str]) -> Program:
    """Return a program with the keys ``read`` of the chip it was lowered for, and figures that its name does not tell.

    A file of a chip that does not ship may be called as one that does.
    """
    follows_from = tuple(sorted(set(read) - TEXT_KEYS))
    try:
        name = resolve_chip_name(chip.name)
    except ConfigError:
        return msgspec.structs.replace(program, follows_from=follows_from)
    changed = changed_figures(msgspec.structs.replace(chip, name=name))
    figures = {key: value for key, value in changed.items() if key not in TEXT_KEYS}
    return msgspec.structs.replace(program, figures=figures, follows_from=follows_from)


def _is_called(name: str, chip_name: str) -> bool:
    """Return whether a name is that of a chip, or an alias of it."""
    return name == chip_name or resolve_chip_name(name) == chip_name


_CUT_BY = (
    *("mxu.rows", "mxu.columns", "vpu.lanes", "vpu.sublanes"),
    *("cores_per_device", "vmem.capacity_bytes", "vmem.scoped_bytes", "tuple_table_granule_bytes"),
    *("mxu.model", "mxu.settings", "vpu.model", "vpu.settings", "hbm.model"),
)
"""Figures that a program goes by which does not say what it follows from: one that ran, or was written by hand."""


def _cut_otherwise(program: Program, chip: Chip) -> str:
    """Return what a program was not lowered for: a chip, or other figures of its chip; nothing if it was."""
    if not _is_called(program.chip, chip.name):
        return chip.name
    if chip.name not in chip_names():
        return ""
    others = changed_at(chip, load_chip(chip.name, program.figures), program.follows_from or _CUT_BY)
    return _with_changes(chip.name, others) if others else ""


def _with_changes(name: str, figures: Mapping[str, Any]) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in figures.items())
    return f"{name} with {changes}" if changes else name


def _on_cores(step: AnyStep, cores: int) -> AnyStep:
    if not isinstance(step, Kernel) or step.cores <= cores:
        return step
    return msgspec.structs.replace(step, cores=cores)
