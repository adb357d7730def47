"""How commands print their answers."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Callable
from json import dumps
from typing import Any

_NOT_ASCII = re.compile(r"[^\n -~]+")


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
    """Write the JSON of a stage, in ASCII: JSON has a way to write what a terminal would obey."""
    write(_NOT_ASCII.sub(lambda found: dumps(found[0])[1:-1], text))


def write_json(page: Any) -> None:
    """Write a page of ``report.json``."""
    from tpusim.report.json.page import json_text

    write(json_text(page))


def console() -> Any:
    """Return the console to print tables on; only the reports know what it is."""
    from tpusim.report.pipe import make_printer

    return make_printer()
