"""The text form of a lowered program: indented JSON with a version, to be diffed, edited and written by hand."""

from __future__ import annotations

from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from tpusim.errors import ConfigError, ProgramError, UnsupportedError
from tpusim.files import check_json_keys, read_bytes, reason, write_whole
from tpusim.limits import PROGRAM_BYTES, check_truth, shown
from tpusim.program.buffers import PlannedBuffers
from tpusim.program.edit import changed_lists
from tpusim.program.module import FORMAT, Program, written_steps
from tpusim.program.steps import AnyStep, Step, Steps
from tpusim.program.verify import verify_once

_LOOKED_AT = 1 << 10

_MOST_STEPS, _MOST_TIMES = 2**13, 4
"""What is shared in memory is written out for each step that holds it: calls of calls would fill any disk.

A file has at most so many steps, or so many times those that there are.
"""


_HELD = "condition", "body", "branches"
"""The fields of steps that hold other steps."""

_STAND_IN = {"type": "Wait", "name": "", "opcode": ""}
"""What stands for a step inside another while that is looked at: each is by itself, and once."""


class _Versioned(msgspec.Struct):
    """Any object that says what it is."""

    format: str


def is_lowered(text: bytes) -> bool:
    """Return whether the bytes of a file hold a lowered program, of this version or another."""
    # HLO text is looked at no further than its first character.
    if not text[:_LOOKED_AT].lstrip().startswith(b"{"):
        return False
    try:
        found = msgspec.json.decode(text, type=_Versioned).format
    except (ValueError, RecursionError):
        return False
    return found.startswith(FORMAT.rpartition("-")[0])


def save_program(program: Program, path: str | Path) -> None:
    """Write a program as indented JSON: fields as in the classes, defaults left out, steps tagged by ``type``.

    Raises UnsupportedError for a program that ``load_program`` would not read, such as one with too large a number, and
    ProgramError for one with a value of a wrong type.
    """
    write_whole(path, encode_program(program))


def encode_program(program: Program) -> str:
    """Return the text that ``save_program`` writes."""
    program = as_read(program)
    most = max(_MOST_STEPS, _MOST_TIMES * len(program.every_step))
    if (count := written_steps(program)) > most:
        raise UnsupportedError(
            f"{program.name}: expected at most {shown(most)} steps in a file, those of each call, found {shown(count)}"
        )
    written = structs.replace(program, buffers=tuple(program.buffers))
    try:
        # What is read from a file is held to this; a run of what was just lowered is not.
        verify_once(written)
    except ProgramError as error:
        raise UnsupportedError(f"{program.name}: no file can hold this program: {error}") from error
    try:
        # Defaults are left out, but for the version: readers of the file must see it.
        data = {"format": program.format, **msgspec.to_builtins(written)}
    except RecursionError as error:
        raise UnsupportedError(f"{program.name}: its steps nest deeper than a file of them can be written") from error
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode() + "\n"


def load_program(path: str | Path) -> Program:
    """Read what ``save_program`` wrote, or a file written by hand in the same form.

    Raises ProgramError with the path inside the object if a field is missing, unknown or of the wrong type,
    and with the step if it cannot run.
    """
    return decode_program(read_bytes(path, "cannot be read", ProgramError, PROGRAM_BYTES), path)


def decode_program(text: bytes, path: str | Path) -> Program:
    """Return the program that the bytes of a file hold; ``path`` is for the errors, which are as above."""
    try:
        # By itself, so that a file of some other kind is told so, and not of a field that it lacks.
        version = msgspec.json.decode(text, type=_Versioned).format
        if version != FORMAT:
            raise ProgramError(f"expected the format {FORMAT!r}, found {version!r}")
        program = msgspec.json.decode(text, type=Program)
        # By itself: nobody has to look at its types again.
        vars(program)["as_read"] = program
        check_json_keys(text)
        verify_once(program)
    except (ValueError, RecursionError, ProgramError) as error:
        raise ProgramError(f"{path}: not a lowered program ({FORMAT}): {reason(error)}") from error
    return program


def as_read(program: Program) -> Program:
    """Return a program that was made in Python as it would be read from its file.

    Python lets any value stand in any field. Rows become tuples and NumPy's numbers Python's, as in a file. Raises
    ProgramError, with the step, for a value of another type than its field's, and ConfigError for what is no program.
    """
    if not isinstance(program, Program):
        raise ConfigError(f"program: expected a lowered program, found {program!r:.80}")
    # Beside all else that is computed once of a program.
    known = vars(program)
    if "as_read" not in known:
        read: Program = _converted(program, Program, "program: ")
        # What lowering has planned is not made before somebody asks for it.
        buffers = program.buffers if isinstance(program.buffers, PlannedBuffers) else read.buffers
        read = structs.replace(read, steps=changed_lists(program.steps, _steps_as_read), buffers=buffers)
        known["as_read"] = vars(read)["as_read"] = read
    made: Program = known["as_read"]
    return made


def _steps_as_read(steps: Steps) -> Steps:
    """Return steps as they would be read, but for the lists that they hold, which are by now known to be such."""
    return tuple([_step_as_read(step) for step in steps])


def _step_as_read(step: AnyStep) -> AnyStep:
    held = {name: getattr(step, name) for name in _HELD if name in step.__struct_fields__}
    read: AnyStep = structs.replace(_converted(step, AnyStep, f"{step.name!r:.200}: "), **held)
    return read


def _converted(item: msgspec.Struct, kind: Any, place: str) -> Any:
    try:
        return msgspec.convert(_written(item), kind)
    # msgspec takes an array of NumPy for an object with fields.
    except (AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise ProgramError(f"{place}{error}") from error


def _written(item: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as a file has it: its tag, if it has one, and its fields by name."""
    tag = item.__struct_config__.tag
    fields = {name: _plain(getattr(item, name)) for name in item.__struct_fields__}
    return fields if tag is None else {"type": tag, **fields}


def _plain(value: Any) -> Any:
    """Return a value of a field as a file has it; what no file can have stays, and is refused by its type."""
    # Most are plain already.
    if value is None or value.__class__ in (str, int, float, bool):
        return value
    if isinstance(value, msgspec.Struct):
        return _STAND_IN if isinstance(value, Step) else _written(value)
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    return () if isinstance(value, PlannedBuffers) else _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    """Return a text, a number or a truth as Python's own, which are those that can be written."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    with suppress(ConfigError):
        return check_truth("", value)
    return value
