"""Options that several commands take, and how their texts are read."""

from __future__ import annotations

import argparse
from math import inf
from typing import Any

CHIP_HELP = "a chip's name or TOML file (default: from PROGRAM's name or .json)"


def number(text: str) -> int:
    """Return a whole number from 0; argparse reports anything else."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0, found {text!r}")
    return int(text)


def positive(text: str) -> float:
    """Return a number above 0; argparse reports anything else."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return found


def overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Return the overrides of the command line by key."""
    from tpusim.hardware.load import parse_override

    return dict(parse_override(text) for text in options.override)
