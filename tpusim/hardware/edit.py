"""Changing one quantity in the text of a chip file, with everything else left as its author wrote it."""

from __future__ import annotations

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

    ``fact.key`` is dotted; all but its last word name the section.
    """
    *sections, key = fact.key.split(".")
    document = tomlkit.parse(text)
    table: Any = document
    for section in sections:
        table = table.setdefault(section, tomlkit.table())
    # A backslash at the end of a line joins it to the next.
    note = " \\\n  ".join(wrap(fact.note, 114))
    head = f'value = {fact.value:g}, confidence = "{fact.confidence}", source = "{fact.source}"'
    table[key] = tomlkit.value(f'{{ {head}, note = """\n  {note}""" }}')
    return tomlkit.dumps(document)
