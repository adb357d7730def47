"""What tables call things that come from files: by their names, and where several have one by where each is from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import PurePath

from tpusim.errors import ConfigError
from tpusim.files import utf8_text
from tpusim.hardware.load import is_chip_file, load_chip

Named = tuple[str, str]
"""A name, and the path of what it names."""


def names_apart(named: Iterable[Named]) -> dict[Named, str]:
    """Return what each of some things is called: by its name where no other one has it, so that all differ.

    Of those of one name each has beside it the end of its path that no other one's path has, as short as can be. A
    name that is the last part of the path is a part of that end.
    """
    found = dict.fromkeys(named, "")
    sharing = Counter(name for name, _ in found)
    # Of all paths at once: there may be thousands of one name.
    ends = Counter((name, end) for name, path in found for end in _ends(path))
    for name, path in found:
        own = next((end for end in _ends(path) if ends[name, end] == 1), PurePath(path).parts)
        end = PurePath(*own).as_posix() if sharing[name] > 1 else name
        found[name, path] = end if PurePath(end).name == name else f"{name} ({end})"
    return found


def _ends(path: str) -> Iterator[tuple[str, ...]]:
    """Yield the ends of a path, the shortest first."""
    parts = PurePath(path).parts
    return (parts[-count:] for count in range(1, len(parts) + 1))


def chips_apart(stated: Iterable[str]) -> dict[str, str]:
    """Return what each of some chips is called, by how it is stated; nothing of what is no chip.

    A file that somebody has copied from a shipped one may say that chip's name.
    """
    found = dict[str, Named]()
    for text in stated:
        with suppress(ConfigError):
            name = load_chip(text).name
            found[text] = name, utf8_text(os.path.abspath(text)) if is_chip_file(text) else name
    names = names_apart(found.values())
    return {text: names[named] for text, named in found.items()}
