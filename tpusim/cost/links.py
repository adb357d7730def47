"""The links of a pod by number, and bytes on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tpusim.hardware.pod import Pod

LOCAL, OUT, IN = range(3)
"""What a chip has beside its links: the way between its own devices, and to and from the data-centre network."""

_EXTRA = 3


class Load(NamedTuple):
    """Bytes on each of some links; a link may come more than once."""

    links: np.ndarray
    n_bytes: np.ndarray

    def times(self, factor: float) -> Load:
        """Return the same links with that many times the bytes."""
        return Load(self.links, self.n_bytes * factor)


NO_LOAD = Load(np.zeros(0, np.int64), np.zeros(0))


def joined(loads: list[Load]) -> Load:
    """Return several loads as one, each link once."""
    if not loads:
        return NO_LOAD
    links = np.concatenate([load.links for load in loads])
    n_bytes = np.concatenate([load.n_bytes for load in loads])
    found, place = np.unique(links, return_inverse=True)
    return Load(found, np.bincount(place, n_bytes, len(found)) if len(found) else n_bytes)


def ici_link(pod: Pod, chip: int, link: int) -> int:
    """Return the number in the whole pod of a link of the slice that ``chip`` is in."""
    return chip // pod.torus.chip_count * pod.torus.link_count + link


def extra_link(pod: Pod, chip: int, which: int) -> int:
    """Return the number of a chip's ``LOCAL``, ``OUT`` or ``IN``."""
    return pod.slices * pod.torus.link_count + chip * _EXTRA + which


def link_name(pod: Pod, number: int) -> tuple[int, str]:
    """Return the chip of a link and which of its links it is."""
    beside = number - pod.slices * pod.torus.link_count
    if beside >= 0:
        return beside // _EXTRA, ("local", "out", "in")[beside % _EXTRA]
    chip, which = divmod(number, 2 * len(pod.torus.sizes))
    return chip, f"{'-' if which % 2 else '+'}{which // 2}"
