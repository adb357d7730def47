"""How commands print their answers."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

_NOT_ASCII = r"[^\n\t -~]+"


def answer(options: Namespace, page: Callable[..., Any], render: Callable[..., None], *found: Any) -> None:
    """Print what was found: as JSON if that is asked for, made by ``page``, else as ``render`` prints it."""
    if options.json:
        write_json(page(*found))
    else:
        render(*found, console())


def write(text: str) -> None:
    """Write a text and an end of line."""
    sys.stdout.write(text.rstrip("\n") + "\n")


def write_stage(text: str) -> None:
    """Write the JSON of a stage in ASCII, with escapes of JSON for what a terminal would obey."""
    write(re.sub(_NOT_ASCII, _in_json, text))


def _in_json(found: re.Match[str]) -> str:
    digits = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))


def write_hlo(text: str) -> None:
    """Write HLO text with escapes that its strings, which are those of C, and the JSON in it have in common.

    Letters beyond U+FFFF have none; what a terminal would obey among them is replaced.
    """
    write(re.sub(_NOT_ASCII, lambda found: "".join(map(_in_hlo, found[0])), text))


def _in_hlo(character: str) -> str:
    number = ord(character)
    return character if number > 0xFFFF and character.isprintable() else f"\\u{min(number, 0xFFFD):04x}"


def write_json(page: Any) -> None:
    """Write a page of ``report.json``."""
    from tpusim.report.json.page import json_text

    write(json_text(page))


def console() -> Any:
    """Return the console to print tables on; only the reports know what it is."""
    from tpusim.report.pipe import make_printer

    return make_printer()
