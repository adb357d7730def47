"""What tpusim notes in a text: who compiled it for which chip and devices; of a kernel, what it does not make.

The notes are ``frontend_attributes`` of the module or the instruction, so that they stay in what is written to a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tpusim.ir.attributes import Raw
from tpusim.ir.module import Instruction, Module
from tpusim.semantics.infer.control import frontend_attributes

COMPILED_FOR = "tpusim_compiled_for"
"""The chip that tpusim compiled a module for."""

RETILED_FOR = "tpusim_retiled_for"
"""The chip that tpusim chose the tiles of another compiler's kernels anew for."""


TOPOLOGY = "tpusim_topology"
"""The slice that a module was compiled for, as in ``v5e:2x4``, where whoever compiled it has told."""

DEVICE_ORDER = "tpusim_device_order"
"""By number of a device in the module, which device of that slice it is, as its chips are numbered by coordinates."""

BY_SLICE = "BySlice"
"""The emitter of a collective whose algorithm is chosen where it runs: what is compiled is for a chip, not a slice."""

APART = "tpusim_apart"
"""Of a kernel: the neighbours whose results it reads and does not make itself, each with the rule."""

ASKED_FLOPS = "tpusim_asked_flops"
"""Of a convolution whose images are cut: the operations that the program asks for. Those beyond meet padding that is
stored as if it were of the images, which nothing in the text tells from them."""


def mark_of(marked: Module | Instruction, mark: str) -> str:
    """Return what a mark says; empty if there is no such mark."""
    # Most modules have none, and what others state of each argument is long.
    if mark not in str(marked.attributes.get("frontend_attributes", "")):
        return ""
    return frontend_attributes(marked.attributes).get(mark, "")


def with_mark(attributes: dict[str, Any], mark: str, text: str) -> dict[str, Any]:
    """Return the attributes of a module or an instruction with a mark that says something."""
    others = str(attributes.get("frontend_attributes", "{}")).strip().removeprefix("{").removesuffix("}")
    # One that says something else.
    others = re.sub(rf'\b{mark}="[^"]*",?', "", others)
    # A chip of a user's own may be called anything.
    named = f'{mark}="{text.translate(_IN_QUOTES)}"'
    return attributes | {"frontend_attributes": Raw("{" + ",".join(filter(None, (named, others))) + "}")}


def marked_with_order(attributes: dict[str, Any], devices: Sequence[int], topology: str = "") -> dict[str, Any]:
    """Return the attributes of a module whose device ``n`` is device ``devices[n]`` of a slice, by default of any."""
    marked = with_mark(attributes, DEVICE_ORDER, ",".join(map(str, devices)))
    return with_mark(marked, TOPOLOGY, topology) if topology else marked


def apart_of(kernel: Instruction) -> dict[str, str]:
    """Return the neighbours that a kernel reads and does not make, each with the rule."""
    return dict(part.split(": ", 1) for part in mark_of(kernel, APART).split("; ") if part)


def with_apart(attributes: dict[str, Any], rules: dict[str, str]) -> dict[str, Any]:
    """Return the attributes of a kernel that say what ``apart_of`` returns."""
    return with_mark(attributes, APART, "; ".join(f"{name}: {why}" for name, why in rules.items()))


_IN_QUOTES = str.maketrans({'"': "'", "\\": "/", "\n": " "})
