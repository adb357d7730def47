"""The text form of a lowered program: indented JSON with a version, to be diffed, edited and written by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tpusim.errors import ProgramError, UnsupportedError
from tpusim.files import check_json_keys, read_bytes, write_whole
from tpusim.limits import PROGRAM_BYTES, shown
from tpusim.program.module import FORMAT, Program, written_steps
from tpusim.program.verify import verify_once

_LOOKED_AT = 1 << 10

_MOST_STEPS, _MOST_TIMES = 2**13, 4
"""What is shared in memory is written out for each step that holds it: calls of calls would fill any disk.

A file has at most so many steps, or so many times those that there are.
"""


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

    Raises UnsupportedError for a program that ``load_program`` would not read, such as one with too large a number.
    """
    write_whole(path, encode_program(program))


def encode_program(program: Program) -> str:
    """Return the text that ``save_program`` writes."""
    most = max(_MOST_STEPS, _MOST_TIMES * len(program.every_step))
    if (count := written_steps(program)) > most:
        raise UnsupportedError(
            f"{program.name}: expected at most {shown(most)} steps in a file, those of each call, found {shown(count)}"
        )
    written = msgspec.structs.replace(program, buffers=tuple(program.buffers))
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
        check_json_keys(text)
        verify_once(program)
    except (ValueError, RecursionError, ProgramError) as error:
        raise ProgramError(f"{path}: not a lowered program ({FORMAT}): {error}") from error
    return program
