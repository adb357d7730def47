"""The programs of a study: files by pattern, with variants told by parts of their names, or made by a function."""

from __future__ import annotations

import glob
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from tpusim.errors import ConfigError
from tpusim.hardware.fields import parse_value
from tpusim.ir.module import Module
from tpusim.pipeline.modules import print_module
from tpusim.text.reader import read_content

Source = str | Path | Module | Callable[..., Module]
"""A path or a pattern, a module, or a function that makes one of values of axes."""

_HASH_DIGITS = 16
_GROUP = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class ProgramText:
    """A program as it travels to a worker: the name of its file and its bytes.

    ``name`` is what tables call it; ``variables`` are what its pattern told of it, such as a batch size.
    """

    name: str
    path: str
    content: bytes = field(repr=False)
    variables: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def digest(self) -> str:
        """What tells it from other programs, whatever they are called."""
        return digest(self.content)


def digest(content: bytes) -> str:
    """Return the first digits of a hash of bytes."""
    return sha256(content).hexdigest()[:_HASH_DIGITS]


def find_programs(
    sources: Sequence[Source] | Mapping[str, Source] | Source,
    values: Mapping[str, Sequence[Any]],
    folder: Path = Path(),
) -> list[ProgramText]:
    """Return the programs of a study, in order, each file once; of a mapping under the names in it.

    A part of a pattern in braces (``bert_b{batch}.v6e.hlo.txt.gz``) stands for any text without dot, underscore and
    slash, and is a variable of the program; one between two dots may have underscores (``bert.{slice}.hlo.txt``). A
    function is called with each combination of the ``values`` of axes that it has parameters for. Patterns start from
    ``folder``. Raises ConfigError where nothing is found.
    """
    if isinstance(sources, str | Path | Module) or callable(sources):
        sources = [sources]
    named = sources.items() if isinstance(sources, Mapping) else [("", source) for source in sources]
    found: list[ProgramText] = []
    for name, source in named:
        if isinstance(source, Module):
            found.append(_of_module(name or source.name, source, ()))
        elif callable(source):
            found.extend(_made(name or getattr(source, "__name__", "program"), source, values))
        else:
            found.extend(_of_pattern(name, str(source), folder))
    if not found:
        raise ConfigError("study: expected at least one program, found none")
    return list({(one.path, one.variables): one for one in found}.values())


def _of_module(name: str, module: Module, variables: tuple[tuple[str, Any], ...]) -> ProgramText:
    told = "".join(f" {key}={value}" for key, value in variables)
    path = module.source.name if module.source else f"{name}{told}"
    return ProgramText(name, path, print_module(module).encode(), variables)


def _made(name: str, make: Callable[..., Module], values: Mapping[str, Sequence[Any]]) -> list[ProgramText]:
    wanted = _axes_of(name, make, values)
    settings = (tuple(zip(wanted, row, strict=True)) for row in product(*(values[key] for key in wanted)))
    made = [(one, make(**dict(one))) for one in settings]
    for _, module in made:
        if not isinstance(module, Module):
            raise ConfigError(f"study: expected a module from {name}, found {module!r:.80}")
    return [_of_module(name, module, one) for one, module in made]


def _axes_of(name: str, make: Callable[..., Module], values: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the parameters of a function that have values; raise ConfigError if one that it needs has none."""
    parameters = inspect.signature(make).parameters.values()
    for one in parameters:
        is_needed = one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if is_needed and one.name not in values:
            known = ", ".join(map(repr, values)) or "none"
            raise ConfigError(f"study: expected values for {one.name!r}, a parameter of {name}, found {known}")
    return [one.name for one in parameters if one.name in values]


def _of_pattern(name: str, pattern: str, folder: Path) -> list[ProgramText]:
    # Unlike the method of paths it leaves the home of a user that is not there as it is.
    stated = Path(os.path.expanduser(pattern))
    whole = str(folder / stated)
    expected, paths = _expression(whole), list[str]()
    # A name that no file system has is no file's, and names none.
    with suppress(OSError, ValueError):
        paths = [whole] if Path(whole).is_file() else sorted(glob.glob(_GROUP.sub("*", whole), recursive=True))
    matches = [(path, found) for path in paths if (found := expected.fullmatch(path))]
    if not matches:
        rule = "a variable is text without '.', '/' and, unless it stands between dots, '_'"
        near = f"; {paths[0]!r} does not match: {rule}" if paths else ""
        where = "" if stated.is_absolute() else f" in {folder.resolve()}"
        raise ConfigError(f"study: expected programs by the pattern {pattern!r}, found none{where}{near}")
    return [
        ProgramText(
            name or Path(path).name,
            path,
            read_content(path)[1],
            tuple((key, parse_value(value)) for key, value in found.groupdict().items()),
        )
        for path, found in matches
    ]


def _expression(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern with ``*``, ``?``, ``[...]`` and variables in braces.

    Raises ConfigError for a variable that is no name or stands twice, and for letters from a later to an earlier one.
    """
    # What stands for any text is glob's to decide; here only the variables matter.
    parts = re.split(r"(\{\w+\}|\*+/?|\?|\[[^]]+\])", pattern)
    around = zip(["", *parts], parts, [*parts[1:], ""], strict=False)
    try:
        return re.compile("".join(_part(part, before[-1:] == after[:1] == ".") for before, part, after in around))
    except re.error as error:
        raise ConfigError(f"study: expected a pattern of programs, found {pattern!r}: {error.msg}") from error


def _part(part: str, is_between_dots: bool) -> str:
    """Return the expression of a part of a pattern; what stands between dots is one word, as in ``.v5e_2x4.``."""
    if variable := _GROUP.fullmatch(part):
        return rf"(?P<{variable[1]}>[^/.{'' if is_between_dots else '_'}]+)"
    return {"*": ".*", "?": "."}.get(part[:1], part if part[:1] == "[" else re.escape(part))
