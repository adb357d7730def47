"""The stages from a file to numbers, as a flat list that can stop after any of them.

Workers meet only here: text reads, lowering lowers, the machine runs, analysis adds up. ``simulate`` is all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tpusim.analysis.communication import PodUse, pod_use
from tpusim.analysis.compare import RunFigures, is_result, load_result, run_figures
from tpusim.analysis.memory import MemoryReport, memory_report
from tpusim.analysis.summary import Summary, summarise
from tpusim.analysis.utilisation import Group, group_records
from tpusim.display import page_of, text_of
from tpusim.errors import ConfigError, did_you_mean
from tpusim.hardware.array import Array
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import load_chip, override_chip, resolve_chip_name
from tpusim.hardware.pod import Topology, parse_topology
from tpusim.ir.module import Module
from tpusim.ir.ops import OPERATIONS
from tpusim.lowering.module import DEFAULT_TRIPS, RULES, lower_module
from tpusim.program.feed import Feed, parse_feed
from tpusim.program.layers import Layer, load_layers
from tpusim.program.module import Program, walk
from tpusim.program.steps import (
    Branch,
    Call,
    ChannelTransfer,
    Collective,
    Copy,
    HostTransfer,
    Kernel,
    Loop,
    Wait,
)
from tpusim.program.stored import load_program
from tpusim.program.verify import verify_blocks
from tpusim.program.warnings import run_warnings
from tpusim.shapes.address import logical_bytes, physical_bytes
from tpusim.systolic.closed_form import run_gemm
from tpusim.text.literals import literal_values
from tpusim.text.parser import parse_module
from tpusim.text.reader import read_source
from tpusim.timeline.folds import ArrayRun
from tpusim.timeline.records import PodRun, Timeline
from tpusim.units import ps_to_us

if TYPE_CHECKING:
    from tpusim.analysis.explanation import Explanation
    from tpusim.numerics.site import Settings
    from tpusim.timeline.records import Record

Progress = Callable[["Record"], None]

PRECISIONS = ("tpu", "exact")

_NAME_PART = re.compile(r"[._]")
# v4 is programmed as one core or as two; only the kernels of a program tell for which it was compiled.
_MEGACORE = re.compile(r'"megacore_split_dim"')


@dataclass(frozen=True, repr=False)
class Result:
    """A run: the lowered program, the chip, what happened, and the numbers that follow from it.

    ``pod`` is what all devices and links did; ``timeline`` that of the device which ended last. ``module`` is
    what the text said, None for a program that came lowered.
    """

    program: Program
    chip: Chip
    pod: PodRun
    module: Module | None = None

    @property
    def timeline(self) -> Timeline:
        """What the device that ended last did."""
        return self.pod.last

    @property
    def time_us(self) -> float:
        """Simulated run time in microseconds."""
        return ps_to_us(self.timeline.total_ps)

    @cached_property
    def summary(self) -> Summary:
        """All numbers of the run: utilisation, roofline, memory, ops, warnings."""
        return summarise(self.program, self.chip, self.timeline, len(self.pod.timelines))

    @cached_property
    def communication(self) -> PodUse:
        """What devices and links did together: exposed and hidden communication, bandwidths, shares of links."""
        return pod_use(self.pod)

    def __repr__(self) -> str:
        """Name the program, the chip and the time: all fields would be thousands of lines."""
        return f"<Result of {self.program.name} on {self.chip.name}: {self.time_us:.2f} us>"

    def __str__(self) -> str:
        """Return the report of ``tpusim run``."""
        return text_of(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return page_of(self)

    def groups(self, by: str = "op") -> tuple[Group, ...]:
        """Return the run's records added up by ``op``, ``category`` or ``source``."""
        return group_records(self.timeline, by)


def load(path: str | Path) -> Module:
    """Read an HLO module from a file of HLO text, plain or gzip-compressed (``-`` for standard input).

    Raises ProgramError with line, column and a caret if the text is wrong.
    """
    return parse_module(read_source(path))


def lower(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    default_trip_count: int = DEFAULT_TRIPS,
) -> Program:
    """Return the lowered program of what ``simulate`` takes, without running it."""
    return _fitted(program, chip, _topology(topology), overrides, default_trip_count)[0]


def simulate(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    default_trip_count: int = DEFAULT_TRIPS,
    warm: bool = False,
    timeout_us: float | None = None,
    beside: Sequence[Module | Program | str | Path] = (),
    infeed: Feed | str | None = None,
    outfeed: Feed | str | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run a program on the devices of a chip or of a slice of chips and return the result.

    ``program`` is what ``load`` gave, a lowered program, or a path to either. ``chip`` is a name, a path to a TOML
    file, or a ``Chip``; by default it is the topology's, or found from the file's name or the ``.json`` beside it.
    ``topology`` is the slice of a program for many chips (``v5e:2x4``). ``overrides`` maps dotted keys of the chip
    (``hbm.bandwidth_bytes_per_second``) to values. ``default_trip_count`` is taken for loops whose trips the program
    does not tell. A ``warm`` run is one of many alike: what the compiler prefetches across programs has come in during
    the run before, as in any benchmark that repeats a program. ``timeout_us`` ends a run that takes longer, in
    simulated time. Programs ``beside`` this one run on the devices after its own, each on as many as it is for.
    ``infeed`` and ``outfeed`` are the host's paces (``50us``, ``normal:50us:5us:7``, a file); else it is always ready.
    Raises TpusimError of the kind that says who must act, SimulationError if devices wait for ever.
    """
    # SimPy is needed by no other stage.
    from tpusim.machine.run import RunOptions, simulate_pod

    slice_ = _topology(topology)
    loaded, _ = _loaded(program)
    lowered, machine = _lowered(loaded, chip, slice_, overrides, default_trip_count)
    others = [_lowered(other, machine, slice_, None, default_trip_count)[0] for other in beside]
    _check_topology(slice_, [lowered, *others], machine)
    if timeout_us is not None and not 0 < timeout_us < inf:
        raise ConfigError(f"timeout: expected microseconds above 0, found {timeout_us}")
    timeout_seconds = None if timeout_us is None else timeout_us * 1e-6
    paces = [parse_feed(pace) if isinstance(pace, str) else pace for pace in (infeed, outfeed)]
    options = RunOptions(warm, None, timeout_seconds, *paces)
    run = simulate_pod([lowered, *others], machine, slice_, progress, options)
    warnings = run_warnings([lowered, *others], *paces)
    lowered = msgspec.structs.replace(lowered, warnings=(*lowered.warnings, *run.warnings, *warnings))
    return Result(lowered, machine, run, loaded if isinstance(loaded, Module) else None)


def figures(program: Module | Program | str | Path, chip: Chip | str | None = None) -> RunFigures:
    """Return what ``analysis.compare`` compares of a run: of a saved result, or of a program that is simulated.

    Raises ConfigError if a saved result is to have run on another chip than it did.
    """
    if isinstance(program, str | Path) and is_result(program):
        found = load_result(program)
        if chip is not None and (chip if isinstance(chip, str) else chip.name) != found.chip:
            raise ConfigError(f"{program}: a saved result of {found.chip}, which cannot be run on another chip")
        return found
    return run_figures(simulate(program, chip).summary)


def run_program(
    program: Program,
    chip: Chip,
    topology: Topology | None = None,
    progress: Progress | None = None,
    *,
    warm: bool = False,
) -> Timeline:
    """Run a lowered program on one device of ``chip``; ``warm`` as for ``simulate``."""
    # SimPy is needed by no other stage.
    from tpusim.machine.run import simulate_program

    return simulate_program(program, chip, topology, progress, warm=warm)


def explain(
    program: Module | Program | str | Path,
    op: str,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Explanation:
    """Return why the kernel of one instruction takes as long as it does: its tiles, units, memories and padding.

    Raises ConfigError if the program has no kernel of that name.
    """
    from tpusim.analysis.explanation import explanation
    from tpusim.cost.tile import between_tiles_cycles, tile_costs

    slice_ = _topology(topology)
    loaded, _ = _loaded(program)
    lowered, machine = _fitted(loaded, chip, slice_, overrides, DEFAULT_TRIPS)
    kernel = _kernel(lowered, op)
    alone = run_program(_alone(lowered, kernel), machine, slice_).records[0]
    in_run = [r for r in run_program(lowered, machine, slice_).records if r.name == op]
    shapes = _array_bytes(loaded, op) if isinstance(loaded, Module) else {}
    costs = (tile_costs(kernel, machine), between_tiles_cycles(kernel, machine))
    return explanation(kernel, machine, *costs, (alone, in_run), shapes)


def memory(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> MemoryReport:
    """Return what a program needs of a chip's memories, buffer by buffer; what does not fit is no error here."""
    return memory_report(*_fitted(program, chip, _topology(topology), overrides, DEFAULT_TRIPS))


def _alone(program: Program, kernel: Kernel) -> Program:
    """Return a program of one kernel that waits for nothing."""
    return msgspec.structs.replace(program, steps=(msgspec.structs.replace(kernel, needs=()),))


def _kernel(program: Program, name: str) -> Kernel:
    """Return a kernel of a lowered program by name."""
    steps = {step.name: step for step, _ in walk(program.steps)}
    found = steps.get(name)
    if isinstance(found, Kernel) and not found.scalar:
        return found
    kernels = [step.name for step in steps.values() if isinstance(step, Kernel) and not step.scalar]
    hint = f", which is {_OTHER_STEPS[type(found)]}" if found else did_you_mean(name, kernels)
    raise ConfigError(f"{program.name}: expected the name of one of its {len(kernels)} kernels, found {name!r}{hint}")


_OTHER_STEPS: dict[type, str] = {
    Kernel: "an instruction of the scalar core",
    Copy: "an asynchronous copy",
    Wait: "a wait for an asynchronous step",
    Collective: "a collective",
    HostTransfer: "a transfer to or from the host",
    ChannelTransfer: "a transfer over a channel",
    Loop: "a loop: name a kernel of its body",
    Branch: "a conditional: name a kernel of a branch",
    Call: "a call: name a kernel of what it calls",
}
"""What a step is that has no tiles to explain."""


def _array_bytes(module: Module, name: str) -> dict[str, tuple[int, int]]:
    """Return the physical and the unpadded bytes of an instruction's operands and result, by name."""
    computation = next(c for c in module.computations if name in c.by_name)
    instruction = computation[name]
    arrays = (instruction, *computation.operands_of(instruction))
    return {array.name: (physical_bytes(array.shape), logical_bytes(array.shape)) for array in arrays}


def execute(
    program: Module | str | Path,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    replicas: int = 1,
    precision: str = "tpu",
    seed: int = 0,
    max_iterations: int | None = None,
    infeed: Iterable[Any] | None = None,
    outfeed: list[Any] | None = None,
) -> Any:
    """Compute a module's result, as a TPU would (``precision="tpu"``) or in IEEE arithmetic (``"exact"``).

    ``inputs`` are arrays in the order of the parameters, or a mapping of ``in0, in1, ...``; for several devices
    (``replicas`` times the module's partitions) also a list of such lists, and the result is then a list with each
    device's. Arrays have the parameters' types, or float32 for types that NumPy's files know not; plain numbers and
    lists must fit them. ``seed`` starts ``rng``; ``max_iterations`` stops a runaway ``while``; ``infeed`` is what
    infeeds read, and what outfeeds write is appended to ``outfeed``.
    Arrays come back as NumPy arrays of their own (bf16 and other narrow types from ml_dtypes), tuples as tuples.

    Raises ProgramError for a module that the verifier refuses and for inputs that are not the parameters'.
    """
    # NumPy, Numba and the kernels load for who computes values only.
    from tpusim.numerics.execute import execute_module
    from tpusim.numerics.files import take_inputs

    if precision not in PRECISIONS:
        raise ConfigError(f"precision: expected one of {', '.join(PRECISIONS)}, found {precision!r}")
    module = program if isinstance(program, Module) else load(program)
    shapes = [parameter.shape for parameter in module.entry.parameters]
    values = take_inputs(inputs, shapes) if isinstance(inputs, Mapping) else inputs
    settings = numeric_settings(precision, seed, max_iterations)
    results = execute_module(module, values, settings, replicas, infeed, outfeed)
    return results[0] if len(results) == 1 else results


def numeric_settings(precision: str, seed: int = 0, max_iterations: int | None = None) -> Settings:
    """Return the settings of a computation of values; text reads the constants."""
    from tpusim.numerics.site import Settings

    return Settings(read_literal=literal_values, precision=precision, seed=seed, max_iterations=max_iterations)


def random_arrays(module: Module, seed: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays that are given by name, and random ones for a module's other parameters."""
    from tpusim.numerics.files import with_random

    return with_random(given, [parameter.shape for parameter in module.entry.parameters], seed)


def check(program: Module | str | Path) -> list[str]:
    """Return what is wrong with a module, one message each: shapes, arities, schedules, channels, aliases, groups."""
    from tpusim.semantics.verify.module import problems

    module = program if isinstance(program, Module) else load(program)
    return [str(problem) for problem in problems(module)]


def run_layers(layers: Sequence[Layer] | str | Path, array: Array, model: str = "fast") -> list[tuple[Layer, ArrayRun]]:
    """Return what each layer takes on a systolic array: in closed form (``fast``), or counted (``cycle``).

    ``layers`` may be a path to a CSV file, see ``program/layers.py``.
    """
    found = load_layers(layers) if isinstance(layers, str | Path) else layers
    if model == "fast":
        return [(layer, run_gemm(layer, array)) for layer in found]
    # Numba is for who counts cycles.
    from tpusim.systolic.count import count_layer

    return [(layer, count_layer(layer, array)) for layer in found]


def opcode_rules() -> dict[str, frozenset[str]]:
    """Return, by what can be done with an operation, the opcodes that it can be done with."""
    from tpusim.build.builder import method_of
    from tpusim.numerics.execute import RULES as NUMERICS
    from tpusim.semantics.infer.rules import RULES as INFERENCE

    return {
        "built": frozenset(opcode for opcode in OPERATIONS if method_of(opcode)),
        "parsed": frozenset(OPERATIONS),
        "inferred": frozenset(INFERENCE),
        "verified": frozenset(INFERENCE),
        # The walk over a module takes parameters itself.
        "computed": frozenset(NUMERICS) | {"parameter"},
        "timed": frozenset(RULES),
    }


def find_chip_name(path: str | Path, text: str = "") -> str:
    """Return the chip that the ``.json`` beside a program, or else the program's name, says it was compiled for.

    A v4 program whose ``text`` splits its kernels over two cores is for the megacore. Raises ConfigError if neither
    says.
    """
    # What somebody has written down goes before what a name suggests.
    stated = _stated_chip(Path(path)) or _named_chip(Path(path).name)
    if stated is None:
        raise ConfigError(f"{path}: neither its name nor a .json beside it says which chip it is for: use --chip")
    return f"{stated}-megacore" if stated == "v4" and _MEGACORE.search(text) else stated


def _topology(topology: Topology | str | None) -> Topology | None:
    """Return a slice, read from its notation if need be."""
    return parse_topology(topology) if isinstance(topology, str) else topology


def _lowered(
    program: Module | Program | str | Path,
    chip: Chip | str | None,
    topology: Topology | None,
    overrides: Mapping[str, Any] | None,
    default_trip_count: int,
) -> tuple[Program, Chip]:
    """Return a lowered program and the chip to run it on."""
    loaded, path = _loaded(program)
    # A slice without a chip has an empty name there, which must count as none.
    machine = _chip(loaded, path, chip or (topology.chip if topology else None) or None, overrides)
    lowered = _on(loaded, machine) if isinstance(loaded, Program) else lower_module(loaded, machine, default_trip_count)
    verify_blocks(lowered, machine.vmem.capacity_bytes * machine.cores_per_device)
    return lowered, machine


def _fitted(
    program: Module | Program | str | Path,
    chip: Chip | str | None,
    topology: Topology | None,
    overrides: Mapping[str, Any] | None,
    default_trip_count: int,
) -> tuple[Program, Chip]:
    """Return what ``_lowered`` does, of a program that has the slice to itself."""
    lowered, machine = _lowered(program, chip, topology, overrides, default_trip_count)
    _check_topology(topology, [lowered], machine)
    return lowered, machine


def _on(program: Program, chip: Chip) -> Program:
    """Return a lowered program for a run on a chip, with a warning if it was cut up for another."""
    if program.chip == chip.name or resolve_chip_name(program.chip) == chip.name:
        return program
    warning = f"lowered for {program.chip}, run on {chip.name}: its tiles and its work are still those of the former"
    return msgspec.structs.replace(program, warnings=(*program.warnings, warning))


def _check_topology(topology: Topology | None, programs: Sequence[Program], chip: Chip) -> None:
    """Refuse a slice that programs side by side do not fill or fit on, or that the chip's links cannot form."""
    if topology is None:
        return
    if topology.chip and resolve_chip_name(topology.chip) != chip.name.removesuffix("-megacore"):
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


def _loaded(program: Module | Program | str | Path) -> tuple[Module | Program, str]:
    """Return a program, read from its file if need be, and the name of the file or an empty string."""
    if isinstance(program, Program):
        return program, ""
    if isinstance(program, Module):
        return program, program.source.name if program.source else ""
    # By the ending: everything else, standard input too, is read as HLO text.
    if str(program).endswith(".json"):
        return load_program(program), str(program)
    return load(program), str(program)


def _chip(program: Module | Program, path: str, chip: Chip | str | None, overrides: Mapping[str, Any] | None) -> Chip:
    """Return the chip to run on."""
    if isinstance(chip, Chip) and overrides:
        return override_chip(chip, overrides)
    if isinstance(chip, Chip):
        return chip
    name = chip or (program.chip if isinstance(program, Program) else _chip_of_module(program, path))
    return load_chip(name, overrides)


def _chip_of_module(module: Module, path: str) -> str:
    """Return the name of the chip that a module was compiled for."""
    return find_chip_name(path or module.name, module.source.text if module.source else "")


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
