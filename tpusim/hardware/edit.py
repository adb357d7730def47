"""Changing one quantity in the text of a chip file, with everything else left as its author wrote it."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from textwrap import wrap
from typing import Any

from tpusim.errors import ConfigError
from tpusim.hardware.fields import Fact

try:
    import tomlkit
except ImportError as error:
    raise ConfigError("calibrate needs TOML Kit: pip install 'tpusim[calibrate]'") from error


def restate(text: str, fact: Fact) -> str:
    """Return the text of a chip file in which ``fact`` stands in the place of its key, or at the end of its section.

    ``fact.key`` is dotted; all but its last word name the section. Raises ValueError for a text that is no TOML, or has
    something else than a table where the section is.
    """
    *sections, key = fact.key.split(".")
    try:
        document = tomlkit.parse(text)
    except tomlkit.exceptions.TOMLKitError as error:
        raise ValueError(str(error)) from error
    table: Any = document
    for section in sections:
        table = table.setdefault(section, tomlkit.table())
        if not isinstance(table, MutableMapping):
            raise ValueError(f"{section} is no table")
    # A backslash at the end of a line joins it to the next.
    note = " \\\n  ".join(wrap(_escaped(fact.note), 114))
    head = f'value = {fact.value:g}, confidence = "{fact.confidence}", source = "{_escaped(fact.source)}"'
    table[key] = tomlkit.value(f'{{ {head}, note = """\n  {note}""" }}')
    return tomlkit.dumps(document)


def _escaped(text: str) -> str:
    """Return a text as it stands between quotes: TOML escapes as JSON does, and one letter more."""
    return json.dumps(text, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")
