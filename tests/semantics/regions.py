"""Elements of regions, counted one by one."""

from __future__ import annotations

from itertools import product


def element_count(region, shape):
    """Return the elements of a region: one by one where their places are known, else at most so many."""
    if region.is_whole:
        return shape.element_count
    known = set()
    for box in region.boxes:
        if box.is_exact:
            known.update(product(*(range(s.start, s.start + s.reach, s.step) for s in box.spans)))
    return min(len(known) + sum(box.most for box in region.boxes if not box.is_exact), shape.element_count)
