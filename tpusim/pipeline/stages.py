"""The stages from a file to numbers, as a flat list that can stop after any of them.

Workers meet only here: text reads, lowering lowers, the machine runs, analysis adds up. ``simulate`` is all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from tpusim.analysis.compare import Comparison, RunFigures, compare, is_result, load_result, run_figures
from tpusim.analysis.memory import MemoryReport, memory_report, memory_use
from tpusim.cost.models.choice import check_models
from tpusim.errors import ConfigError, ProgramError, TpusimError, UnsupportedError
from tpusim.files import shown_name
from tpusim.frontends.read import hlo_text
from tpusim.hardware.chip import Chip
from tpusim.hardware.pod import Topology, as_topology
from tpusim.ir.module import Module, with_devices, with_own_names
from tpusim.ir.ops import OPERATIONS
from tpusim.limits import COMPUTED_DEVICES, COUNT, DEVICES, LONGEST_US, SEED, check_count, check_truth, is_number
from tpusim.lowering.module import DEFAULT_TRIPS, RULES, lower_module
from tpusim.pipeline.capacity import check_capacity
from tpusim.pipeline.chip_choice import (
    check_compiler,
    check_topology,
    choose_chip,
    for_chip,
    on_slice,
    provenance_of,
    with_figures,
)
from tpusim.pipeline.host import host_warnings
from tpusim.pipeline.result import Result
from tpusim.pipeline.reuse import Noting, Reusing, no_reuse
from tpusim.pipeline.schedules import check_lowered, check_schedule, other_schedules, resolved_schedule, with_schedule
from tpusim.program.feed import Feed, parse_feed
from tpusim.program.module import Program
from tpusim.program.provenance import Provenance, Schedule
from tpusim.program.stored import as_read, decode_program, is_lowered, load_program
from tpusim.program.verify import run_warnings, verify_blocks, verify_once, verify_products
from tpusim.semantics.verify.module import problems, verify_module
from tpusim.source import SourceText
from tpusim.text.literals import literal_values
from tpusim.text.parser import parse_module
from tpusim.text.reader import read_content, source_text
from tpusim.timeline.records import Record, Timeline

Progress = Callable[[Record], None]

_LOWERED = "expected HLO text, found a lowered program, which is compiled already"

PRECISIONS = ("tpu", "exact")


class Prepared(NamedTuple):
    """A lowered program, the chip that it is to run on, the slice, the module it was lowered from, and its schedule.

    ``others`` are schedules that it could have been given for the chip instead.
    """

    program: Program
    chip: Chip
    topology: Topology | None
    module: Module | None
    schedule: str
    others: tuple[str, ...] = ()


def load(path: str | Path, *, whole: bool = False) -> Module:
    """Read an HLO module from a file, plain or gzip-compressed (``-`` for standard input).

    The file has HLO text or, where jaxlib is installed, StableHLO (text, bytecode, portable artifact) or a serialised
    HloModuleProto or HloProto: its first bytes tell. StableHLO for several devices becomes what each of them runs, or
    stays ``whole``, as one would compute it. Raises ProgramError with line, column and a caret if the text is
    wrong, or a lowered program, and ConfigError if jaxlib is needed and missing.
    """
    return _parse(*read_content(path), whole)


def read_program(name: str, content: bytes) -> Module | Program:
    """Return the program that a file of this name has, from its unpacked bytes; errors are those of ``load``."""
    return decode_program(content, name) if name.endswith(".json") else _parse(name, content)


def _parse(name: str, content: bytes, whole: bool = False) -> Module:
    if is_lowered(content):
        ending = "" if name.endswith(".json") else "; under a name that ends in .json it can be run"
        raise ProgramError(f"{name}: {_LOWERED}{ending}")
    converted = hlo_text(content, name, whole=whole)
    return parse_module(source_text(name, content) if converted is None else SourceText(name, converted, "as HLO text"))


def lower(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    default_trip_count: int = DEFAULT_TRIPS,
    schedule: str = "",
) -> Program:
    """Return the lowered program of what ``simulate`` takes, without running it."""
    noting = Noting()
    found = prepare(program, chip, topology, overrides, default_trip_count, schedule, reuse=noting)
    # One that was lowered before is for the chip that it was for.
    return found.program if found.module is None else with_figures(found.program, found.chip, noting.keys)


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
    schedule: str = "",
    allow_overflow: bool = False,
    reuse: Reusing = no_reuse,
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
    ``schedule`` is ``given`` (as the text has it), ``retiled`` (the same kernels, their tiles chosen anew for the chip)
    or ``compiled`` (by tpusim, for the chip); by default a scheduled module runs as given, any other compiled.
    Raises TpusimError of the kind that says what has to change: CapacityError if the program does not fit the chip's
    HBM or VMEM, unless ``allow_overflow``; SimulationError if devices wait for ever. Runs that share a ``Reuse`` take
    from each other what does not depend on what they differ in.
    """
    # SimPy is needed by no other stage.
    from tpusim.machine.run import RunOptions, simulate_pod

    warm, allow_overflow = check_truth("warm", warm), check_truth("allow_overflow", allow_overflow)
    rest = default_trip_count, schedule
    own = _lowered(program, chip, topology, overrides, *rest, reuse=reuse)
    lowered, machine, slice_, module, used, _ = own
    if isinstance(beside, Module | Program | str | Mapping) or not isinstance(beside, Iterable):
        raise ConfigError(f"beside: expected a list of programs, found {beside!r:.80}")
    every = [own]
    for other in map(load_any, beside):
        # Trips are given for those of the programs that have loops without any.
        trips = DEFAULT_TRIPS if isinstance(other, Program) else default_trip_count
        every.append(_lowered(other, machine, slice_, None, trips, schedule, reuse=reuse))
    programs = [one.program for one in every]
    check_topology(slice_, programs, machine)
    for one in () if allow_overflow else every:
        check_capacity(one.program, machine, one.others)
    if timeout_us is not None and not (is_number(timeout_us, LONGEST_US) and timeout_us):
        wanted = f"microseconds above 0 and at most {LONGEST_US:g}"
        raise ConfigError(f"timeout: expected {wanted}, found {timeout_us!r:.80}")
    timeout_seconds = None if timeout_us is None else timeout_us * 1e-6
    paces = [_pace(pace) for pace in (infeed, outfeed)]
    options = RunOptions(warm, None, timeout_seconds, *paces)
    run = simulate_pod(programs, machine, slice_, progress, options)
    warnings = *run.warnings, *run_warnings(programs, *paces)
    # What is known of a program is known of that one, and not of a copy.
    told = structs.replace(lowered, warnings=lowered.warnings + warnings) if warnings else lowered
    return Result(told, machine, run, module, used)


def _pace(pace: Feed | str | None) -> Feed | None:
    if pace is None or isinstance(pace, Feed):
        return pace
    if not isinstance(pace, str):
        raise ConfigError(f"pace of the host: expected a text such as 50us, found {pace!r:.80}")
    return parse_feed(pace)


def figures(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    schedule: str = "",
    *,
    overrides: Mapping[str, Any] | None = None,
    default_trip_count: int = DEFAULT_TRIPS,
    allow_overflow: bool = False,
) -> RunFigures:
    """Return what ``analysis.compare`` compares of a run: of a saved result, or of a program that is simulated.

    Raises ConfigError if a saved result is to have run on another chip than it did, CapacityError as ``simulate`` does.
    """
    if isinstance(program, str | Path) and is_result(program):
        found = load_result(program)
        if overrides:
            raise ConfigError(f"{program}: a saved result of {found.chip}, of which no figure can be replaced any more")
        if chip is not None and (chip if isinstance(chip, str) else chip.name) != found.chip:
            raise ConfigError(f"{program}: a saved result of {found.chip}, which cannot be run on another chip")
        return found
    run = simulate(
        program,
        chip,
        overrides=overrides,
        default_trip_count=default_trip_count,
        schedule=schedule,
        allow_overflow=allow_overflow,
    )
    return run_figures(run.summary)


def diff(
    before: Module | Program | str | Path,
    after: Module | Program | str | Path,
    chip: Chip | str | None = None,
    other_chip: Chip | str | None = None,
    *,
    schedule: str = "",
    other_schedule: str = "",
    other_overrides: Mapping[str, Any] | None = None,
    default_trip_count: int = DEFAULT_TRIPS,
    allow_overflow: bool = False,
) -> Comparison:
    """Return what changes from one run to another, by op and by category: what ``tpusim diff`` prints.

    Each is what ``simulate`` takes, or a path to a result that ``tpusim run --save`` wrote. ``other_chip`` is the
    second one's, by default ``chip``; ``other_schedule`` likewise, and ``other_overrides`` replace figures of its chip.
    ``default_trip_count`` and ``allow_overflow`` are as for ``simulate``.
    """
    rest: dict[str, Any] = {"default_trip_count": default_trip_count, "allow_overflow": allow_overflow}
    second = figures(after, other_chip or chip, other_schedule or schedule, overrides=other_overrides, **rest)
    return compare(figures(before, chip, schedule, **rest), second)


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


def own_ps(program: Program, chip: Chip, topology: Topology | None) -> int:
    """Return what the steps of a program take, without its launch."""
    timeline = run_program(program, chip, topology)
    return timeline.total_ps - sum(record.duration_ps for record in timeline.records if record.step < 0)


def memory(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    *,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    schedule: str = "",
) -> MemoryReport:
    """Return what a program needs of a chip's memories, buffer by buffer; what does not fit is no error here."""
    return memory_report(*prepare(program, chip, topology, overrides, schedule=schedule)[:2])


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
    chip: Chip | str | None = None,
    schedule: str = "given",
) -> Any:
    """Compute a module's result, as a TPU would (``precision="tpu"``) or in IEEE arithmetic (``"exact"``).

    ``inputs`` are arrays in the order of the parameters, or a mapping of ``in0, in1, ...``; for several devices
    (``replicas`` times the module's partitions) also a list of such lists, and the result is then a list with each
    device's. Arrays have the parameters' types, or float32 for types that NumPy's files know not; plain numbers and
    lists must fit them. ``seed`` starts ``rng``; ``max_iterations`` are the trips after which a loop is stopped, by
    default all are after some million instructions; ``infeed`` is what infeeds read (a tuple at once, or its arrays
    one after the other), and what outfeeds write is appended to ``outfeed``. Products are summed in blocks as deep as
    the arrays of ``chip``, by default of the chip that the module was compiled for, if it was compiled for one. What is
    computed is the module as it stands; with another ``schedule``, as for ``simulate``, what then runs on the chip.
    Arrays come back as NumPy arrays of their own (bf16 and other narrow types from ml_dtypes), tuples as tuples.

    Raises ProgramError for a module that the verifier refuses and for inputs that are not the parameters',
    SimulationError for a loop that has not ended and for devices that wait for ever, UnsupportedError for values that
    do not fit the memory of this machine.
    """
    # NumPy, Numba and the kernels load only where values are computed.
    from dataclasses import replace

    from tpusim.numerics.execute import execute_module
    from tpusim.numerics.files import take_inputs
    from tpusim.numerics.site import Settings

    if precision not in PRECISIONS:
        raise ConfigError(f"precision: expected one of {', '.join(PRECISIONS)}, found {precision!r}")
    replicas = check_count("replicas", replicas, DEVICES)
    seed = check_count("seed", seed, SEED)
    if max_iterations is not None:
        max_iterations = check_count("max_iterations", max_iterations, COUNT)
    module = computed_module(program, chip=chip, schedule=schedule)
    if replicas > 1:
        # With the counts of devices: groups may name some that the run has not.
        module = with_devices(module, replicas, module.partition_count)
    verified = verify_module(module)
    if fault := COMPUTED_DEVICES.fault(module.replica_count * module.partition_count):
        raise UnsupportedError(f"{module.name}: {fault}")
    shapes = [parameter.shape for parameter in module.entry.parameters]
    values = take_inputs(inputs, shapes) if isinstance(inputs, Mapping) else inputs
    # Text reads the constants.
    settings = Settings(literal_values, precision, max_iterations=max_iterations, seed=seed)
    with suppress(ConfigError) if chip is None else nullcontext():
        depth = choose_chip(module, provenance_of(module), chip=chip).mxu.rows
        settings = replace(settings, array_depth=depth)
    try:
        results = execute_module(verified, values, settings, infeed, outfeed)
    except MemoryError as error:
        raise UnsupportedError(f"{module.name}: its values do not fit the memory of this machine: {error}") from error
    return results[0] if len(results) == 1 else results


def computed_module(program: Module | str | Path, *, chip: Chip | str | None = None, schedule: str = "given") -> Module:
    """Return the module that ``execute`` computes: what it takes and gives may be parts of what the program does."""
    module = load_module(program, whole=schedule == "given")
    check_schedule(schedule)
    if schedule == "given":
        return module
    made_by = provenance_of(module)
    return with_schedule(module, made_by, choose_chip(module, made_by, chip=chip), schedule)[0]


def check(program: Module | Program | str | Path) -> list[str]:
    """Return what is wrong with a program, one message each: shapes, arities, schedules, channels, aliases, groups.

    What is wrong with the text itself, or with a file of a lowered program, is raised as ProgramError by reading it.
    """
    loaded = load_any(program)
    return [str(problem) for problem in problems(loaded)] if isinstance(loaded, Module) else []


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


def prepare(
    program: Module | Program | str | Path,
    chip: Chip | str | None = None,
    topology: Topology | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    default_trip_count: int = DEFAULT_TRIPS,
    schedule: str = "",
    *,
    reuse: Reusing = no_reuse,
) -> Prepared:
    """Return what a run by itself begins with; arguments and errors are those of ``simulate``."""
    found = _lowered(program, chip, topology, overrides, default_trip_count, schedule, reuse=reuse)
    check_topology(found.topology, [found.program], found.chip)
    return found


def _lowered(
    program: Module | Program | str | Path,
    chip: Chip | str | None,
    topology: Topology | str | None,
    overrides: Mapping[str, Any] | None,
    default_trip_count: int,
    schedule: str = "",
    *,
    reuse: Reusing = no_reuse,
) -> Prepared:
    """Return what ``prepare`` does, of a program that may share its slice with others."""
    default_trip_count = check_count("default_trip_count", default_trip_count, COUNT)
    slice_ = as_topology(topology)
    loaded = load_any(program)
    used = resolved_schedule(loaded, schedule)
    if isinstance(loaded, Program):
        verify_once(loaded)
        check_compiler(loaded, loaded.provenance)
        file = shown_name(program) if isinstance(program, str | Path) else ""
        machine = choose_chip(loaded, loaded.provenance, chip=chip, topology=slice_, overrides=overrides, file=file)
        check_models(machine)
        check_lowered(loaded, schedule, default_trip_count)
        lowered = on_slice(for_chip(loaded, machine), machine, slice_)
        verify_blocks(lowered, machine.vmem.capacity_bytes)
        verify_products(lowered, machine.mxu.rows * machine.mxu.columns)
        return Prepared(lowered, machine, slice_, None, used, other_schedules(loaded, used))
    if isinstance(chip, Chip):
        made_by = reuse("provenance", loaded, (), chip, lambda _: provenance_of(loaded))
    else:
        made_by = provenance_of(loaded)
    check_compiler(loaded, made_by)
    machine = choose_chip(loaded, made_by, chip=chip, topology=slice_, overrides=overrides)
    check_models(machine)
    rest = used, slice_, default_trip_count
    scheduled = reuse("schedule", loaded, rest, machine, lambda chip: _scheduled(loaded, made_by, chip, *rest))
    lowered = reuse(
        "lower", scheduled, rest, machine, lambda chip: _lower(*scheduled, chip, used, slice_, default_trip_count)
    )
    if missing := tuple(host_warnings(loaded, scheduled[0])):
        lowered = structs.replace(lowered, warnings=lowered.warnings + missing)
    placed = on_slice(lowered, machine, slice_)
    return Prepared(placed, machine, slice_, scheduled[0], used, other_schedules(loaded, used))


def _scheduled(
    module: Module, made_by: Provenance, chip: Chip, schedule: str, topology: Topology | None, trips: int
) -> tuple[Module, Provenance]:
    """Return the module that runs on a chip under a schedule, and what made it."""
    of_step = _own_price(chip, topology)

    def price(module: Module) -> float:
        program = lower_module(verify_module(module), chip, trips, of_step)
        fits = memory_use(program).peak_vmem_bytes <= chip.vmem.capacity_bytes
        return run_program(program, chip, topology).total_ps if fits else inf

    # Steps, buffers and addresses are found by the names of their instructions.
    named = with_own_names(module)
    if named is not module:
        # What is wrong is said with the names of the text.
        verify_module(module)
    return with_schedule(named, made_by, chip, schedule, price, topology=topology)


def _lower(
    module: Module, made_by: Provenance, chip: Chip, schedule: Schedule, topology: Topology | None, trips: int
) -> Program:
    """Return the lowered program of a scheduled module, with what made it."""
    lowered = lower_module(verify_module(module), chip, trips, _own_price(chip, topology))
    return structs.replace(lowered, provenance=made_by, whose_schedule=schedule)


def _own_price(chip: Chip, topology: Topology | None) -> Callable[[Program], int]:
    """Return what says how long a part of a program takes on a slice."""

    def price(part: Program) -> int:
        # Beside others a program may fill no whole slice: then as on its own. What cannot run there takes no time; the
        # run of the whole says why it cannot.
        for slice_ in (topology, None):
            with suppress(TpusimError):
                check_topology(slice_, [part], chip)
                return own_ps(on_slice(part, chip, slice_), chip, slice_)
        return 0

    return price


def load_any(program: Module | Program | str | Path) -> Module | Program:
    """Return a program, read from its file if need be: a lowered one by its ending, everything else as a module."""
    if isinstance(program, Module):
        return program
    # The caller has made it, or functions of the caller's have given figures to what lowered it.
    if isinstance(program, Program):
        return as_read(program)
    if not isinstance(program, str | PathLike):
        raise ConfigError(f"program: expected a module, a lowered program or the name of a file, found {program!r:.80}")
    return load_program(program) if str(program).endswith(".json") else load(program)


def load_module(program: Module | str | Path, *, whole: bool = False) -> Module:
    """Return a module, read from its file as ``load`` does if need be, for what cannot use a lowered program."""
    if isinstance(program, str | PathLike):
        return load(program, whole=whole)
    loaded = load_any(program)
    if isinstance(loaded, Program):
        raise ConfigError(f"{loaded.name}: {_LOWERED}")
    return loaded
