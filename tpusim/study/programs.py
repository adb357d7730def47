"""The programs of a study: files by pattern, with variants told by parts of their names, or made by a function."""

from __future__ import annotations

import fnmatch
import glob
import inspect
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from tpusim.errors import ConfigError
from tpusim.files import utf8_text
from tpusim.hardware.fields import parse_value
from tpusim.ir.module import Module
from tpusim.pipeline.modules import print_module
from tpusim.study.names import Named, names_apart
from tpusim.text.reader import read_content

Source = str | Path | Module | Callable[..., Module]
"""A path or a pattern, a module, or a function that makes one of values of axes."""

_HASH_DIGITS = 16
_GROUP = re.compile(r"\{(\w+)\}")
# Brackets as glob takes them: the first letter may be one that closes, and none of them parts folders.
_PARTS = re.compile(r"(\{\w+\}|\*+/?|\?|\[!?\]?[^]/]*\])")


@dataclass(frozen=True)
class ProgramText:
    """A program as it travels to a worker: the name of its file and its bytes.

    ``name`` is what tables call it, which no other one of a study is called but for variants under a name that the
    caller gave; ``variables`` are what its pattern told of it, such as a batch size, and ``family`` is what it has in
    common with its variants: its path without them.
    """

    name: str
    path: str
    content: bytes = field(repr=False)
    variables: tuple[tuple[str, Any], ...] = ()
    family: str = ""

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

    A file is called by its name, and where several have one by as much of its path as tells it from the others.

    A part of a pattern in braces (``bert_b{batch}.v6e.hlo.txt.gz``) stands for any text without dot, underscore and
    slash, and is a variable of the program; one between two dots may have underscores (``bert.{slice}.hlo.txt``). A
    function is called with each combination of the ``values`` of axes that it has parameters for. Patterns start from
    ``folder``. Raises ConfigError where nothing is found.
    """
    named = _by_name(sources)
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
    # Modules may differ that name one file.
    return _named({(os.path.abspath(one.path), one.variables, one.digest): one for one in found}.values())


def _by_name(sources: Any) -> Iterable[tuple[str, Source]]:
    """Return sources with the names that the caller gives them, else without; refuse what is none."""
    if isinstance(sources, str | Path | Module) or callable(sources):
        sources = [sources]
    if not isinstance(sources, Iterable):
        raise ConfigError(f"programs: expected patterns of file names, modules or functions, found {sources!r:.80}")
    named = list(sources.items() if isinstance(sources, Mapping) else (("", source) for source in sources))
    for name, one in named:
        if not isinstance(name, str):
            raise ConfigError(f"programs: expected a text as the name of a program, found {name!r:.80}")
        if not (isinstance(one, str | Path | Module) or callable(one)):
            raise ConfigError(f"programs: expected a pattern of file names, a module or a function, found {one!r:.80}")
    return named


def _named(programs: Iterable[ProgramText]) -> list[ProgramText]:
    """Return programs under names that tell them apart, with their variables where the caller has given the name."""
    places: list[Named] = []
    for one in programs:
        is_of_file = one.name == utf8_text(Path(one.path).name)
        places.append((one.name, utf8_text(os.path.abspath(one.path) if is_of_file else one.family)))
    names, found, counts = names_apart(places), list[ProgramText](), Counter[tuple[str, Any]]()
    for one, place in zip(programs, places, strict=True):
        counts[names[place], one.variables] += 1
        # What has neither another place nor other variables: modules by hand, functions without a name.
        count = counts[names[place], one.variables]
        number = f" #{count}" if count > 1 else ""
        found.append(replace(one, name=names[place] + number, family=one.family + number))
    return found


def _of_module(name: str, module: Module, variables: tuple[tuple[str, Any], ...]) -> ProgramText:
    name = utf8_text(name)
    told = "".join(f" {key}={value}" for key, value in variables)
    path = module.source.name if module.source else f"{name}{told}"
    return ProgramText(name, path, print_module(module).encode(), variables, name if variables else path)


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
    # What a file is called, and its folder, is no pattern, whatever letters they have.
    is_file = os.path.isfile(folder / stated)
    parts = [_Part(text=str(stated))] if is_file else _parts(str(stated))
    paths = [str(stated)] if is_file else _found(str(stated), folder)
    fitting = {path: texts for path in paths if (texts := _cut(parts, path)) is not None}
    if not fitting:
        rule = "a variable is text without '.', '/' and, unless it stands between dots, '_'"
        near = f"; {paths[0]!r} does not match: {rule}" if paths else ""
        where = "" if stated.is_absolute() else f" in {folder.resolve()}"
        raise ConfigError(f"study: expected programs by the pattern {pattern!r}, found none{where}{near}")
    return [_of_file(name, folder / path, parts, texts, folder) for path, texts in fitting.items()]


def _of_file(name: str, path: Path, parts: Sequence[_Part], texts: Sequence[str], folder: Path) -> ProgramText:
    """Return the program of a file whose path has a text for each part of a pattern."""
    pairs = list(zip(parts, texts, strict=True))
    return ProgramText(
        utf8_text(name or path.name),
        str(path),
        read_content(path)[1],
        tuple((part.variable, parse_value(utf8_text(text))) for part, text in pairs if part.variable),
        os.path.abspath(folder / "".join(f"{{{part.variable}}}" if part.variable else text for part, text in pairs)),
    )


def _found(pattern: str, folder: Path) -> list[str]:
    """Return the paths in a folder that glob finds, from there."""
    shell_pattern = "".join("*" if _GROUP.fullmatch(text) else text for text in _PARTS.split(pattern))
    # A name that no file system has names none.
    with suppress(OSError, ValueError):
        return sorted(glob.glob(shell_pattern, root_dir=folder, recursive=True))
    return []


@dataclass(frozen=True)
class _Part:
    """A part of a pattern: a ``text`` as it stands, one character of a kind, or any number, at ``least`` so many."""

    fits: Callable[[str], bool] = bool
    text: str = ""
    least: int = 0
    is_one: bool = False
    variable: str = ""

    def ends(self, path: str, rest_fits: Sequence[bool]) -> list[int]:
        """Return by its begin the last end of this part behind which the rest fits, -1 where there is none."""
        size = len(path)
        if self.text or self.is_one:
            step = len(self.text) or 1
            pieces = (path[at : at + step] for at in range(size + 1))
            fitting = (piece == self.text if self.text else self.fits(piece) for piece in pieces)
            return [at + step if fits and rest_fits[at + step] else -1 for at, fits in enumerate(fitting)]
        found = [size if rest_fits[size] else -1]
        for at in reversed(range(size)):
            further = found[-1] if self.fits(path[at]) else -1
            found.append(further if further >= 0 else at if rest_fits[at] else -1)
        found.reverse()
        if self.least:
            found = [found[at + 1] if at < size and self.fits(path[at]) else -1 for at in range(size + 1)]
        return found


def _parts(pattern: str) -> list[_Part]:
    """Return the parts of a pattern with ``*``, ``?``, ``[...]`` and variables in braces.

    Raises ConfigError for a variable that is no name or stands twice.
    """
    texts = [text for text in _PARTS.split(pattern) if text]
    around = zip(["", *texts], texts, [*texts[1:], ""], strict=False)
    parts = [_part(text, before[-1:] == after[:1] == ".") for before, text, after in around]
    names = [part.variable for part in parts if part.variable]
    for name in names:
        if not name.isidentifier() or names.count(name) > 1:
            what = "a name" if not name.isidentifier() else "each variable once"
            raise ConfigError(f"study: expected {what} in braces, found {{{name}}} in the pattern {pattern!r}")
    return parts


def _part(text: str, is_between_dots: bool) -> _Part:
    """Return a part of a pattern; what stands between dots is one word, as in ``.v5e_2x4.``."""
    if variable := _GROUP.fullmatch(text):
        ends = "/." if is_between_dots else "/._"
        return _Part(fits=lambda character: character not in ends, least=1, variable=variable[1])
    if not _PARTS.fullmatch(text):
        return _Part(text=text)
    if text[0] == "*":
        # Which text it may be is glob's to decide; here only the variables matter.
        return _Part()
    # Of letters in brackets glob knows what they mean.
    fits = re.compile(fnmatch.translate(text)).match
    return _Part(fits=lambda character: bool(fits(character)), is_one=True)


def _cut(parts: Sequence[_Part], path: str) -> list[str] | None:
    """Return the texts of a path by the parts of a pattern, each as long as can be; None if it is none of its."""
    # From the end, and each part once: stars tried one in the other would take the power of their number.
    rest_fits = [False] * len(path) + [True]
    found = list[list[int]]()
    for part in reversed(parts):
        found.append(part.ends(path, rest_fits))
        rest_fits = [end >= 0 for end in found[-1]]
    at, texts = 0, list[str]()
    for ends in reversed(found):
        if ends[at] < 0:
            return None
        texts.append(path[at : ends[at]])
        at = ends[at]
    return texts if at == len(path) else None
