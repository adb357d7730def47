"""What the links of a plain torus carry when every sender sends everywhere a share that depends on where alone.

A thousand senders have a million messages. But as each takes one axis after the other, they need not be looked at one
by one: what goes along an axis comes from where senders are along it and the axes still ahead, and goes where shares
are along it and the axes behind.
"""

from __future__ import annotations

import numpy as np

from tpusim.hardware.torus import Torus


def exchanged(torus: Torus, senders: np.ndarray, sent: np.ndarray) -> tuple[np.ndarray, int]:
    """Return what each link of a slice carries, and the links to the farthest chip that gets anything.

    By chip there are the number of ``senders`` and the bytes ``sent`` there by each. A message goes in equal parts both
    ways round where these are as long.
    """
    carried = np.zeros((torus.chip_count, len(torus.sizes), 2))
    for axis, (size, stride) in enumerate(zip(torus.sizes, torus.strides, strict=True)):
        # The axes ahead are still the senders', those behind already the receivers'.
        begins, ends = senders.reshape(-1, size, stride).sum(axis=2), sent.reshape(-1, size, stride).sum(axis=0)
        carried[:, axis, 0] = _up(begins, ends, torus.wraps[axis]).ravel()
        carried[:, axis, 1] = _up(begins[:, ::-1], ends[::-1], torus.wraps[axis])[:, ::-1].ravel()
    return carried.ravel(), _farthest(torus, senders, sent)


def _up(begins: np.ndarray, ends: np.ndarray, wraps: bool) -> np.ndarray:
    """Return what links up an axis carry: messages begin by the axes ahead and place, and end by place and axes behind.

    It is told by the axes ahead, place, and axes behind.
    """
    found = np.zeros((*begins.shape, ends.shape[1]))
    # Of a small group most lines carry nothing.
    ahead, behind = np.nonzero(begins.any(axis=1))[0], np.nonzero(ends.any(axis=0))[0]
    begins, ends, size = begins[ahead], ends[:, behind], len(ends)
    farthest, farthest_share = (size // 2, 1 if size % 2 else 0.5) if wraps else (size - 1, 1)
    # Once more for what comes round; where nothing does it comes from nowhere.
    begins = np.concatenate([begins if wraps else 0 * begins, begins], axis=1)
    ends = np.concatenate([ends, ends if wraps else 0 * ends])
    carried, further = np.zeros((len(ahead), size, len(behind))), np.zeros((size, len(behind)))
    for back in reversed(range(farthest)):
        # What comes from so many places before takes a link if it goes far enough: to a place more for each place less.
        last = ends[farthest - back :][:size]
        carried += begins[:, size - back :][:, :size, None] * (further + farthest_share * last)
        further += last
    found[np.ix_(ahead, np.arange(size), behind)] = carried
    return found


def _farthest(torus: Torus, senders: np.ndarray, sent: np.ndarray) -> int:
    """Return the most links between a sender and a chip that gets anything: what is farthest is so axis by axis."""
    reach = np.where(senders > 0, 0.0, -np.inf)
    for axis, (size, stride) in enumerate(zip(torus.sizes, torus.strides, strict=True)):
        apart = abs(np.subtract.outer(np.arange(size), np.arange(size)))
        shortest = np.minimum(apart, size - apart) if torus.wraps[axis] else apart
        reach = (reach.reshape(-1, size, 1, stride) + shortest[:, :, None]).max(axis=1)
    return int(reach.ravel()[sent > 0].max(initial=0.0)) if senders.any() else 0
