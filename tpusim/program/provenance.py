"""Where a program comes from: which compiler left its text, and for which chip."""

from __future__ import annotations

from typing import Literal

import msgspec

Compiler = Literal["tpu", "tpusim", "cpu", "gpu", "xla", "another", "none"]
"""What scheduled a text: the TPU compiler, tpusim, XLA's backend for CPUs, for GPUs, or for one of them that the text
does not tell, something else, or nothing.
"""

Schedule = Literal["given", "retiled", "compiled"]
"""Whose schedule a program runs under: that of its text, the same with tiles chosen anew, or one that tpusim made."""

MEGACORE = "-megacore"
"""What the name of a chip ends with whose two cores run one program together, where they need not."""

BOOSTED = "-boosted"
"""What the name of a chip ends with at a power state above its default, for which nothing is compiled apart."""


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What made a program.

    ``chip`` is the chip that it was compiled for, empty where nothing tells. ``possible`` are the chips that its text
    allows, and ``signs`` what the text shows that excludes others. ``stated`` is what its name or the facts beside it
    say, which the text may contradict, ``version`` the compiler's by those facts. ``retiled_for`` is the chip that
    tpusim has chosen its tiles for anew, if it has.
    """

    compiler: Compiler
    chip: str = ""
    possible: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    stated: str = ""
    version: str = ""
    retiled_for: str = ""

    def is_for(self, chip_name: str) -> bool:
        """Return whether the TPU compiler made the program as it is for a chip.

        One of v4 that splits no kernel fits either way.
        """
        plain = chip_name.removesuffix(BOOSTED)
        alike = self.chip.removesuffix(MEGACORE) == plain.removesuffix(MEGACORE)
        return self.compiler == "tpu" and not self.retiled_for and alike and plain in self.possible
