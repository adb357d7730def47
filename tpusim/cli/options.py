"""What a command is, the options that several commands take, and how their texts are read."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple

from tpusim.errors import ConfigError
from tpusim.limits import COUNT, LARGEST_AMOUNT, LONGEST_US, REAL

Option = Callable[[Any], None]
"""Adds itself to a parser."""

Run = Callable[[argparse.Namespace], None]

# As people write them; patterns are compiled when a number is read: every command loads this.
_WHOLE = r"[0-9]+"
_SIGNED = r" *-?[0-9]+ *"


class Wrapped(argparse.HelpFormatter):
    """As wide as the terminal; argparse, to ask for that, loads readers of archives when an option is added."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class AsWritten(Wrapped, argparse.RawDescriptionHelpFormatter):
    """Leaves texts of several lines as they are."""


def _columns() -> int:
    """Return the columns of the terminal, as ``shutil`` finds them."""
    stated = found = 0
    with suppress(ValueError):
        stated = int(os.environ.get("COLUMNS", ""))
    with suppress(OSError, ValueError):
        found = os.get_terminal_size(1).columns
    return (stated if stated > 0 else found) or 80


class Command(NamedTuple):
    """A command of the command line, or a kind of ``tpusim plot``: its help, its options, and what it does."""

    name: str
    help: str
    options: tuple[Option, ...]
    run: Run
    description: str | None = None
    epilog: str | None = None

    def add_to(self, commands: Any, *, with_options: bool = True) -> None:
        """Add the command to argparse's subparsers; without its options only its name and its help are known."""
        description = self.description or f"{self.help[0].upper()}{self.help[1:]}."
        # Only texts of several lines are laid out already; argparse wraps the others.
        raw = "\n" in f"{description}{self.epilog}"
        texts = {"help": self.help, "description": description, "epilog": self.epilog}
        parser = commands.add_parser(self.name, formatter_class=AsWritten if raw else Wrapped, **texts)
        for add in self.options if with_options else ():
            add(parser)
        parser.set_defaults(run=self.run)


def command(name: str, help_text: str, *options: Option, **texts: str) -> Callable[[Run], Command]:
    """Return a decorator that makes a command of a function of the parsed options."""
    return lambda run: Command(name, help_text, options, run, **texts)


def option(*flags: str, **settings: Any) -> Option:
    """Return an option, or an argument without a flag, as ``add_argument`` of argparse takes it.

    One that has a single value is refused the second time, and without a value: ``--save "$NAME"`` of no name would
    save nothing.
    """
    if flags[0].startswith("-") and "action" not in settings:
        settings["action"] = _Once
    # argparse reads a default that is a text as well.
    if flags[0].startswith("-") and "metavar" in settings and not settings.keys() & {"type", "default"}:
        settings["type"] = _stated
    return lambda parser: parser.add_argument(*flags, **settings)


def _stated(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a value, found none")
    return text


class _Once(argparse.Action):
    """Keeps a value; argparse by itself would keep the last of several, and say nothing."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        before = getattr(namespace, self.dest, self.default)
        if before != self.default:
            raise argparse.ArgumentError(self, f"expected once, found it twice, with {before!r} and {values!r}")
        setattr(namespace, self.dest, values)


def written(
    *flags: str,
    also: Callable[[str], Iterable[str]] = lambda name: (),
    or_output: bool = False,
    **settings: Any,
) -> Option:
    """Return an option for the name of a file to write, which is neither another one's nor one that is read.

    ``also`` gives the names of the files that are written beside it; with ``or_output``, - is standard output.
    """
    return option(*flags, action=_Written, also=also, type=_name if or_output else _file_name, **settings)


def _file_name(text: str) -> str:
    if text == "-":
        raise argparse.ArgumentTypeError("expected a file, found - (./- for one of that name)")
    return _name(text)


def _name(text: str) -> str:
    if text.endswith(os.sep):
        raise argparse.ArgumentTypeError(f"expected a file, found the folder {text!r}")
    return _stated(text)


class _Written(_Once):
    """Keeps a name, and under ``written`` whose it is."""

    def __init__(self, *, also: Callable[[str], Iterable[str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._also = also

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        super().__call__(parser, namespace, values, option_string)
        names = vars(namespace).setdefault("written", {})
        for name in (values, *self._also(values)):
            other = names.setdefault(os.path.realpath(name), self)
            if other is not self:
                raise argparse.ArgumentError(self, f"expected another file than that of {other.option_strings[-1]}")
        namespace.parser = parser


def check_written(
    options: argparse.Namespace, programs: Iterable[str] = (), chips: Iterable[str] = (), kept: Iterable[str] = ()
) -> None:
    """Raise ConfigError for a file to write that the command reads: one that it names, or one that such a file names.

    ``programs`` and ``chips`` are those of a study, ``kept`` is what it writes by itself.
    """
    names = getattr(options, "written", {})
    if not names:
        return
    taken = (
        *((path, "which says what chip the program is for") for path in _facts(options, programs)),
        *((path, "which is read") for path in _read(options, programs, chips, names)),
        *((path, "which the study keeps") for path in kept),
    )
    for path, why in taken:
        if action := names.get(os.path.realpath(path)):
            raise ConfigError(f"{action.option_strings[-1]}: expected another file than {path!r}, {why}")


def _facts(options: argparse.Namespace, programs: Iterable[str]) -> Iterator[str]:
    """Yield the files that would say the chips of programs, whether they are there or not: the next run would ask."""
    from pathlib import Path

    from tpusim.pipeline.chip_choice import facts_beside

    named = (getattr(options, name, None) for name in ("program", "programs", "beside", "against"))
    for text in (*programs, *(text for value in named for text in _texts(value))):
        yield from (str(facts_beside(Path(name))) for name in (text, *_matching(text)) if name != "-")


def _read(
    options: argparse.Namespace, programs: Iterable[str], chips: Iterable[str], written_files: Iterable[str]
) -> Iterator[str]:
    """Yield the files that are read, those among the files to write that are code of a plug-in included."""
    from tpusim.hardware.load import chip_files

    for text in (*programs, *_named(options)):
        # Under this name standard input is the file that it comes from.
        named = "/dev/stdin" if text == "-" else text
        yield from (name for name in (named, *_matching(text)) if os.path.isfile(name))
    for chip in (*chips, *_texts(getattr(options, "chip", None))):
        yield from map(str, chip_files(chip))
    if plugins := getattr(options, "plugin", ()):
        from tpusim.cost.models.registry import plugin_places

        places = [os.path.realpath(place) for package in plugins for place in plugin_places(package)]
        for name in written_files:
            # A folder that somebody works in has new files in it as well.
            yield from (name for place in places if f"{name}/".startswith(f"{place}/") and os.path.isfile(name))


def _matching(text: str) -> Sequence[str]:
    """Return the files that a pattern names, with variables in braces or as shells write them."""
    from glob import glob

    return glob(re.sub(r"\{\w+\}", "*", text)) if re.search(r"[*?\[{]", text) else ()


def _named(options: argparse.Namespace) -> Iterator[str]:
    """Yield what the command line says that may be the name of a file to read."""
    for action in options.parser._actions:
        value = getattr(options, action.dest, None)
        if not (action.choices or isinstance(action, _Written)):
            yield from _texts(value)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts among the values of an option that was given once, several times or never."""
    yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def listed(flag: str, help_text: str, metavar: str) -> Option:
    """Return an option whose values are listed with commas, or each with the flag."""
    return option(flag, metavar=metavar, type=lambda text: text.split(","), action="extend", default=[], help=help_text)


def group(title: str, description: str, options: Iterable[Option]) -> Option:
    """Return options that stand together in the help."""

    def add(parser: Any) -> None:
        found = parser.add_argument_group(title, description)
        for add_one in options:
            add_one(found)

    return add


def number(text: str) -> int:
    """Return a whole number from 0; argparse reports anything else."""
    if not re.fullmatch(_WHOLE, text):
        raise argparse.ArgumentTypeError(f"expected a whole number from 0, found {text!r}")
    found = COUNT.number(text)
    if fault := COUNT.fault(found):
        raise argparse.ArgumentTypeError(fault)
    return found


def microseconds(text: str) -> float:
    """Return a simulated time above 0; argparse reports anything else."""
    found = float(text) if re.fullmatch(REAL, text) else 0.0
    if not 0 < found <= LONGEST_US:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and at most {LONGEST_US:g}, found {text!r}")
    return found


def amount(text: str) -> float:
    """Return a price, or a number of tokens; argparse reports anything else."""
    found = float(text) if re.fullmatch(REAL, text) else inf
    if not 0 <= found <= LARGEST_AMOUNT:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {LARGEST_AMOUNT:g}, found {text!r}")
    return found


def real(text: str) -> float:
    """Return a number; argparse reports anything else."""
    found = float(text) if re.fullmatch(REAL, text) else inf
    if not -inf < found < inf:
        raise argparse.ArgumentTypeError(f"expected a number, found {text!r}")
    return found


def integer(text: str) -> int:
    """Return a whole number, which its user bounds; argparse reports anything else."""
    if not re.fullmatch(_SIGNED, text):
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}")
    return COUNT.number(text)


def index(text: str) -> tuple[int, ...]:
    """Return a comma-separated list of whole numbers; argparse reports anything else."""
    parts = text.split(",") if text else []
    if not all(re.fullmatch(_SIGNED, part) for part in parts):
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 3,129, found {text!r}")
    return tuple(map(COUNT.number, parts))


def json_option(help_text: str = "print one JSON object instead of tables") -> Option:
    """Return the option for JSON; ``tpusim schema`` describes what it prints."""
    return option("--json", action="store_true", help=help_text)


PROGRAM = option("program", metavar="PROGRAM", help="HLO text, StableHLO or HloProto, or a lowered program (*.json)")
HLO = option("program", metavar="PROGRAM", help="HLO text, StableHLO or HloProto")
CHIP = option("--chip", metavar="C", help="a chip's name or TOML file (default: from PROGRAM's name or .json)")
CHIPS = option("--chip", metavar="C,C", help="chips' names or TOML files (default: from PROGRAM's name or .json)")
TOPOLOGY = option("--topology", metavar="T", help="the slice that the program runs on, as in v5e:2x4")
CHIPS = listed("--chip", "chips to run on (default: from PROGRAM's name or .json)", "C,C")
TOPOLOGIES = listed("--topology", "slices to run on, as in v5e:2x4", "T,T")
OVERRIDE = option("-o", "--override", metavar="K=V", action="append", default=[], help="replace a figure of the chip")
# Where -o is the output.
LONG_OVERRIDE = option("--override", metavar="K=V", action="append", default=[], help="replace a figure of the chip")
# Where it is not given a study's file may state it.
TRIPS = option(
    "--default-trip-count",
    metavar="N",
    type=number,
    default=argparse.SUPPRESS,
    help="of loops that tell none (default: 1)",
)
# Written out, so that --help need not load the rooms; a test holds them against those of pipeline/schedules.py.
SCHEDULES = ("given", "retiled", "compiled")
SCHEDULE = option(
    "--schedule",
    choices=SCHEDULES,
    default="",
    help="as PROGRAM has it, its tiles chosen anew, or compiled by tpusim (default: given, compiled if it has none)",
)
PLUGIN = option(
    "--plugin", metavar="PACKAGE", action="append", default=[], help="let chip files load models from this package"
)
LOWERING = (CHIP, TOPOLOGY, LONG_OVERRIDE, TRIPS, SCHEDULE, PLUGIN)
PLACED = (PROGRAM, CHIP, TOPOLOGY, SCHEDULE, PLUGIN)
DEVICE_ORDER = option(
    "--device-order",
    metavar="N,N",
    help="which devices of the slice the mesh has, as in 0,2,1,3 or reshape(2, 2).transpose(1, 0) (`tpusim explain`), "
    "ids: 0,1,2,..., or hosts: as jax.devices() lists them",
)
MACHINE = (CHIP, TOPOLOGY, DEVICE_ORDER, OVERRIDE, SCHEDULE, PLUGIN)
RUN = (*PLACED, DEVICE_ORDER, OVERRIDE)
OVERFLOW = option(
    "--allow-overflow", action="store_true", help="run what does not fit HBM or VMEM, as if the chip had more"
)
WARM = option("--warm", action="store_true", help="one of many runs: cross-program prefetches have come in")

# Written out, so that --help need not load the rooms; a test holds them against those of hardware/array.py.
DATAFLOWS = ("ws", "os", "is")
DATAFLOW = option("--dataflow", choices=DATAFLOWS, default="ws", help="what stays: weights, outputs or inputs")


def array_sides(size: int, kind: Callable[[str], int] = number) -> tuple[Option, ...]:
    """Return the options of an array's rows and columns, ``size`` by default."""
    sides = {"--rows": "rows of the array", "--cols": "columns of the array"}
    return tuple(
        option(flag, metavar="N", type=kind, default=size, help=f"{text} (default: {size})")
        for flag, text in sides.items()
    )


def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of ``-o`` by key. Raises ConfigError for a key that is stated twice: one would be lost."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"-o {key}: expected once, found it twice, with {found[key]} and {value}")
        found[key] = value
    return found


def overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Return the overrides of the command line by key, and those of a file of Accelergy's tables under them."""
    from tpusim.hardware.load import parse_override

    found = once(parse_override(text) for text in options.override)
    if not getattr(options, "energy_table", None):
        return found
    from tpusim.hardware.accelergy import read_tables

    return read_tables(options.energy_table) | found


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """Return topology, overrides and schedule of the command line, as the stages of the pipeline take them."""
    return {"topology": options.topology, "overrides": overrides(options), "schedule": options.schedule}


def trips(options: argparse.Namespace) -> dict[str, Any]:
    """Return what ``TRIPS`` was given, if anything, under the name that the stages of the pipeline have for it."""
    found = getattr(options, "default_trip_count", None)
    return {} if found is None else {"default_trip_count": found}
