"""How far predictions were from times measured on a chip, by the family of kernels: ``configs/accuracy.toml``."""

from __future__ import annotations

from functools import cache

import msgspec

from tpusim.hardware.load import read_config

_FAMILIES = {
    "matmul": "product",
    "dot_fusion": "product",
    "conv2d_fusion": "convolution",
    "copy": "copy",
    "reshape": "copy",
}
"""By the name that an index of measured rows has for them; all others are of the vector unit."""


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mean absolute error of predictions, as a share, over so many measured rows ``of`` something."""

    error: float
    rows: int
    of: str = ""


@cache
def measured_errors() -> dict[str, dict[str, Measured]]:
    """Return by chip, as the measurements name it, and family of kernels (``Kernel.family``) what was measured."""
    return msgspec.convert(read_config("accuracy.toml"), dict[str, dict[str, Measured]])


def errors_of(chip_name: str) -> dict[str, Measured]:
    """Return by family of kernels what was measured on a chip; both ways to see a v4 are one."""
    return measured_errors().get(chip_name.removesuffix("-megacore"), {})


def kind_of_family(family: str) -> str:
    """Return the family of kernels that measured rows consist of (``v5e matmul``: product)."""
    return _FAMILIES.get(family.partition(" ")[2], "vector")
