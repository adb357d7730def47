"""What form a program has by its first bytes, and its HLO text if that is another than HLO text.

StableHLO comes as MLIR text, as bytecode, or as a portable artifact, which is bytecode of a version that later readers
take (``jax.export``, PyTorch/XLA's ``exported_program_to_stablehlo``). HLO comes serialised as ``HloModuleProto``, or
in the ``HloProto`` around it that XLA dumps (``--xla_dump_hlo_as_proto``). Endings of names say nothing: standard input
has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tpusim.apart import read_apart
from tpusim.errors import ProgramError
from tpusim.frontends.memory_kinds import MEMORY_KIND, lost_moves, memory_spaces, with_marks
from tpusim.frontends.partition import BYTECODE, parsed, partitioned_text
from tpusim.frontends.xla import jaxlib, module_text
from tpusim.ir.custom_calls import INWARD
from tpusim.limits import bounded
from tpusim.source import SourceText

# Never going back: a way back for each of a million blanks takes 100 MB.
_MLIR_TEXT: Final = re.compile(
    rb"(?:\s++|//[^\n]*+)*+"
    rb'(?:(?:builtin\.)?module\s*[@{a]|"(?:builtin\.module|func\.func)"|func\.func\b|sdy\.mesh\b|[#!]\w+\s*=|\{-#)'
)
_MLIR_PLACE: Final = r"(?:^|\s)-:(\d+):(\d+): error: ([^\n]*)"

_SHARED: Final = "sharding={devices="
_BY_HAND: Final = f'custom_call_target="{INWARD}"'

# The first field of either message has number 1 and a length; the second of a HloModuleProto, the name of its entry,
# has number 2, which HloProto does not use.
_FIRST_FIELD: Final = b"\x0a"
_ENTRY_NAME: Final = b"\x12"
_LOOKED_AT: Final = 1 << 20


def hlo_text(content: bytes, name: str, *, whole: bool = False) -> str | None:
    """Return the HLO text of a program in another form; nothing for what is not of one, such as HLO text.

    Of a program for several devices it is what each of them runs, or the ``whole`` one, if there is such: of what
    devices do by hand (``jax.shard_map``) there are only parts. ``name`` is the file's, for messages. Raises
    ConfigError if jaxlib is needed and missing, ProgramError if the program is damaged or not one that XLA takes,
    UnsupportedError if XLA does not partition it.
    """
    for is_of_form, read in _FORMS:
        if is_of_form(content):
            return _guarded(_WHOLE.get(read, read) if whole else read, content, name)
    return None


def _guarded(read: Callable[[bytes, str], str], content: bytes, name: str) -> str:
    """Return what ``read`` makes of a program; what is damaged ends up in XLA's text, messages and exceptions."""
    try:
        with bounded(content, name):
            return read_apart(read, content, name)
    except UnicodeDecodeError as error:
        found = error.object[error.start]
        raise ProgramError(
            f"{name}: expected text in UTF-8, in a program that is whole, found the byte {found:#04x}"
        ) from error
    # What C++ throws at damage that it does not look for, as Python has it.
    except (LookupError, ValueError, ArithmeticError) as error:
        raise ProgramError(f"{name}: expected a program that is whole; XLA's reader says: {error}") from error


def _is_stablehlo(content: bytes) -> bool:
    return content.startswith(BYTECODE) or _MLIR_TEXT.match(content, 0, _LOOKED_AT) is not None


def _is_serialised(content: bytes) -> bool:
    # Text may begin with an empty line, but has no such control character.
    return content.startswith(_FIRST_FIELD) and _ENTRY_NAME in content[:_LOOKED_AT]


def _from_stablehlo(content: bytes, name: str) -> str:
    """Return the HLO text of what each device runs of an MLIR module."""
    text = _given_stablehlo(content, name)
    # Where nothing says that devices share an array, each of them runs it all.
    is_shared = _SHARED in text or _BY_HAND in text
    part = partitioned_text(content, name) if is_shared else ""
    return with_marks(part, lost_moves(part, text)) if part else text


def _whole_stablehlo(content: bytes, name: str) -> str:
    """Return the HLO text of an MLIR module on whole arrays, or of what each device runs if it has parts by hand."""
    text = _given_stablehlo(content, name)
    return _from_stablehlo(content, name) if _BY_HAND in text else text


def _given_stablehlo(content: bytes, name: str) -> str:
    """Return the HLO text of an MLIR module, whose function ``main`` is the program."""
    what = f"{name}: StableHLO"
    library = jaxlib(what)
    try:
        computation = library.mlir.mlir_module_to_xla_computation(content, use_tuple_args=False, return_tuple=False)
    # XLA's errors are of a class that jaxlib makes itself, below this one.
    except RuntimeError as error:
        raise _refused(content, name, str(error), library.version) from error
    text = module_text(computation.get_hlo_module(), what)
    return with_marks(text, memory_spaces(parsed(content))) if MEMORY_KIND.encode() in content else text


def _refused(content: bytes, name: str, reason: str, version: str) -> ProgramError:
    """Return what MLIR says of a module: for text with the place that it points at."""
    found = re.search(_MLIR_PLACE, reason)
    message = found[3] if found else reason.partition("\n")[0]
    expected = f"expected StableHLO with a function 'main', as XLA (jaxlib {version}) reads it, found: {message}"
    if not found or content.startswith(BYTECODE):
        return ProgramError(f"{name}: {expected}")
    text = content.decode(errors="replace")
    line, column = int(found[1]), int(found[2])
    start = sum(len(before) + 1 for before in text.split("\n")[: line - 1]) + column - 1
    return ProgramError(expected, SourceText(name, text).span(start))


def _from_proto(content: bytes, name: str) -> str:
    """Return the HLO text of a serialised module, by itself or as XLA dumps it.

    How many replicas and partitions it is for is not in the message: groups of its collectives tell that.
    """
    what = f"{name}: a serialised HloModuleProto"
    library = jaxlib(what)
    try:
        module = library.hlo.HloModule.from_serialized_hlo_module_proto(_unwrapped(content))
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        expected = "expected HLO text, or a serialised HloModuleProto or HloProto as XLA dumps it"
        raise ProgramError(f"{name}: {expected}; XLA (jaxlib {library.version}) says: {reason}") from error
    return module_text(module, what)


def _unwrapped(content: bytes) -> bytes:
    """Return the HloModuleProto that a HloProto begins with, or the content if it is one itself."""
    length, begin = 0, 1
    for shift in range(0, 64, 7):
        byte = content[begin]
        length |= (byte & 0x7F) << shift
        begin += 1
        if byte < 0x80:
            break
    end = begin + length
    # What is cut off inside its first field is no message at all, which the reader has to notice.
    is_module = end > len(content) or content[end : end + 1] == _ENTRY_NAME
    return content if is_module else content[begin:end]


_FORMS: Final[tuple[tuple[Callable[[bytes], bool], Callable[[bytes, str], str]], ...]] = (
    (_is_stablehlo, _from_stablehlo),
    (_is_serialised, _from_proto),
)

_WHOLE: Final[dict[Callable[[bytes, str], str], Callable[[bytes, str], str]]] = {_from_stablehlo: _whole_stablehlo}
"""What reads a program as it stands instead."""
