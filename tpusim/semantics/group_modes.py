"""Which devices a collective joins: the mode of its groups, and what groups must be like.

Ids are replicas, partitions or both, as ``channel_id`` and ``use_global_device_ids`` say together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpusim.semantics.infer.site import Site, broken

if TYPE_CHECKING:
    from collections.abc import Sequence

CROSS_REPLICA: Final = "cross_replica"
CROSS_PARTITION: Final = "cross_partition"
CROSS_REPLICA_AND_PARTITION: Final = "cross_replica_and_partition"
FLATTENED_ID: Final = "flattened_id"

# XLA gives these a channel but no use_global_device_ids: a channel alone makes their ids partitions.
_WITHOUT_GLOBAL_IDS = (
    "all-to-all collective-broadcast collective-permute collective-permute-start ragged-all-to-all"
).split()


def group_mode(site: Site) -> str:
    """Return the mode of a collective's groups: what their numbers count."""
    attributes = site.attributes
    if "mode" in attributes:
        return str(attributes["mode"])
    # XLA, GetCollectiveOpGroupMode: ids are replicas until a channel joins partitions.
    if "channel_id" not in attributes:
        if site.flag("use_global_device_ids"):
            raise broken("groups_c1", "none")
        return CROSS_REPLICA
    if site.opcode in _WITHOUT_GLOBAL_IDS:
        return CROSS_PARTITION
    return FLATTENED_ID if site.flag("use_global_device_ids") else CROSS_REPLICA_AND_PARTITION


def groups_of(site: Site) -> tuple[tuple[int, ...], ...]:
    """Return the groups; none means one group of all."""
    groups = site.attributes.get("replica_groups")
    return () if groups is None else groups.groups


def check_groups(site: Site, uniform: bool = True) -> str:
    """Require groups that hold every id once; return their mode.

    ``uniform`` groups are all of one size; only an all-reduce may do without. Counts of the module are compared where
    it states any, since 1 is also what stands for "not known".
    """
    mode, groups = group_mode(site), groups_of(site)
    if not groups:
        if mode == FLATTENED_ID:
            raise broken("groups_c2", "none")
        return mode
    ids = [number for group in groups for number in group]
    if not all(groups):
        raise broken("groups_c3", _shown(groups))
    if sorted(ids) != list(range(len(ids))):
        raise broken("groups_c4", _shown(groups))
    expected = _id_count(site, mode)
    if expected not in (1, len(ids)):
        raise broken("groups_c5", f"{len(ids)} for {expected}")
    if uniform and len(set(map(len, groups))) > 1:
        raise broken("groups_c6", _shown(groups))
    return mode


def _id_count(site: Site, mode: str) -> int:
    """Return how many ids there are in a mode."""
    if mode == FLATTENED_ID:
        return site.count("replica_count") * site.count("num_partitions")
    return site.count("num_partitions" if mode == CROSS_PARTITION else "replica_count")


def group_size(site: Site, mode: str) -> int:
    """Return how many devices a group joins; 1 may also mean that nobody said."""
    groups = groups_of(site)
    # Groups list replicas in the mode of both: all partitions of each take part.
    size = len(groups[0]) if groups else _id_count(site, mode)
    return size * site.count("num_partitions") if mode == CROSS_REPLICA_AND_PARTITION else size


def _shown(groups: Sequence[Sequence[int]]) -> str:
    """Return the first groups, as many as a message should hold."""
    text = "{" + ",".join("{" + ",".join(map(str, group[:8])) + "}" for group in groups[:8]) + "}"
    return text if len(groups) <= 8 else f"{text[:-1]},...}}"
