"""Which devices work together: what the numbers in groups and pairs count, and the devices that they stand for.

Ids are replicas, partitions or both, as ``channel_id`` and ``use_global_device_ids`` say together. Device numbers are
replica times partitions plus partition. Before a program is cut up for its devices, two custom calls lead into what
each of them does by hand (``jax.shard_map``), and out of it.

Source: XLA, ``CollectiveOpGroupMode`` and ``GetCollectiveOpGroupMode``; Shardy, ManualComputationOp, and XLA's
round trip of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tpusim.ir.module import Instruction, Module
from tpusim.ir.ops import OPERATIONS
from tpusim.limits import DEVICES
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.semantics.infer.site import Site, require
from tpusim.semantics.marks import DEVICE_ORDER, mark_of

Groups = tuple[tuple[int, ...], ...]
Pairs = tuple[tuple[int, int], ...]

CROSS_REPLICA: Final = "cross_replica"
CROSS_PARTITION: Final = "cross_partition"
CROSS_REPLICA_AND_PARTITION: Final = "cross_replica_and_partition"
FLATTENED_ID: Final = "flattened_id"

_NUMBER = re.compile(r"\b\d{1,9}\b")
_PAIRS_ATTRIBUTE = "_xla_send_recv_source_target_pairs"
_PAIR = r"\{\s*(\d+)\s*,\s*(\d+)\s*\}"


def group_mode(opcode: str, attributes: Mapping[str, Any]) -> str:
    """Return the mode of a collective's groups or pairs: what their numbers count. A start's is that of its opcode."""
    if "mode" in attributes:
        return str(attributes["mode"])
    # XLA, GetCollectiveOpGroupMode: ids are replicas until a channel joins partitions.
    global_ids = attributes.get("use_global_device_ids", False)
    if "channel_id" not in attributes:
        require(not global_ids, "groups_c1", "none")
        return CROSS_REPLICA
    # Of those that take no use_global_device_ids a channel alone makes the ids partitions.
    if not OPERATIONS[opcode.removesuffix("-start")].allows("use_global_device_ids"):
        return CROSS_PARTITION
    return FLATTENED_ID if global_ids else CROSS_REPLICA_AND_PARTITION


def stated_groups(attributes: Mapping[str, Any]) -> Groups:
    """Return the groups as the text has them; none means one group of all ids."""
    groups = attributes.get("replica_groups")
    return () if groups is None else groups.groups


def stated_order(module: Module) -> tuple[int, ...]:
    """Return which device of the slice each device of a module is, where the module says so."""
    return tuple(map(int, _NUMBER.findall(mark_of(module, DEVICE_ORDER))))


def id_count(mode: str, replicas: int, partitions: int) -> int:
    """Return how many ids there are in a mode."""
    return {CROSS_PARTITION: partitions, FLATTENED_ID: replicas * partitions}.get(mode, replicas)


def device_groups(module: Module, collective: Instruction) -> Groups:
    """Return the groups of a collective as numbers of devices."""
    mode = group_mode(collective.opcode, collective.attributes)
    groups = stated_groups(collective.attributes) or (
        tuple(range(id_count(mode, module.replica_count, module.partition_count))),
    )
    if mode == FLATTENED_ID:
        return groups
    if mode == CROSS_REPLICA_AND_PARTITION:
        count = module.partition_count
        return tuple(tuple(r * count + p for r in group for p in range(count)) for group in groups)
    return _devices_of(module, groups, mode == CROSS_PARTITION)


def are_turns(groups: Groups, starts: Sequence[float | None], size: int, whole: int) -> bool:
    """Return whether each device takes the part of a ``size`` that is its turn in its group, and these are the whole.

    ``starts`` are where the parts begin, by device; None is not known.
    """
    if any(len(group) * size != whole for group in groups):
        return False
    turns = ((device, turn) for group in groups for turn, device in enumerate(group))
    return all(device < len(starts) and starts[device] == turn * size for device, turn in turns)


def device_pairs(module: Module, collective: Instruction) -> Pairs:
    """Return the pairs of a permute as numbers of devices, source and target; none for other collectives."""
    stated = collective.attributes.get("source_target_pairs", ())
    of_partitions = bool(stated) and group_mode(collective.opcode, collective.attributes) == CROSS_PARTITION
    return tuple((source, target) for source, target in _devices_of(module, stated, of_partitions))


def channel_pairs(module: Module, transfer: Instruction) -> Pairs | None:
    """Return which device sends to which over the channel of a send or receive, None where its text does not say."""
    raw = frontend_attributes(transfer.attributes).get(_PAIRS_ATTRIBUTE)
    if raw is None:
        return None
    stated = [(DEVICES.number(source), DEVICES.number(target)) for source, target in re.findall(_PAIR, raw)]
    # With partitions the pairs are of partitions, as those of a permute with a channel are.
    return tuple((source, target) for source, target in _devices_of(module, stated, module.partition_count > 1))


def _devices_of(module: Module, lists: Sequence[Sequence[int]], of_partitions: bool) -> Groups:
    """Return lists of partitions as lists of devices in each replica, or those of replicas in each partition.

    Partitions beyond the only one of a module with replicas are those: it states their number under the other name.
    """
    replicas, partitions = module.replica_count, module.partition_count
    are_devices = of_partitions and partitions == 1 and any(number for ids in lists for number in ids)
    if (replicas if of_partitions else partitions) == 1 or are_devices:
        # Ids are devices then. Many collectives share the groups of a large slice: these are not made again.
        return tuple(map(tuple, lists))
    if of_partitions:
        return tuple(tuple(r * partitions + p for p in ids) for r in range(replicas) for ids in lists)
    return tuple(tuple(r * partitions + p for r in ids) for ids in lists for p in range(partitions))


def check_groups(site: Site, uniform: bool = True) -> str:
    """Require groups that hold every id once; return their mode.

    ``uniform`` groups are all of one size; only an all-reduce may do without. Counts of the module are compared where
    it states any, since 1 is also what stands for "not known".
    """
    mode, groups = group_mode(site.opcode, site.attributes), stated_groups(site.attributes)
    if not groups:
        require(mode != FLATTENED_ID, "groups_c2", "none")
        return mode
    ids = [number for group in groups for number in group]
    # The first groups, as many as a message should hold.
    shown = "{" + ",".join("{" + ",".join(map(str, group[:8])) + "}" for group in groups[:8])
    shown += "}" if len(groups) <= 8 else ",...}"
    require(all(groups), "groups_c3", shown)
    require(sorted(ids) == list(range(len(ids))), "groups_c4", shown)
    expected, most = site_id_count(site, mode), site_most_ids(site, mode)
    require(expected in (1, len(ids)), "groups_c5", len(ids), "for", expected)
    # All replicas, if partitions are not stated and replicas stand for them.
    are_some = mode == CROSS_PARTITION and 1 < len(ids) < most < DEVICES.most
    require(len(ids) <= most and not are_some, "groups_c5", len(ids), "for", most)
    require(not uniform or len(set(map(len, groups))) == 1, "groups_c6", shown)
    return mode


def most_ids(count: int) -> int:
    """Return how many ids there may be if a module says ``count``, which as 1 may also mean that it is not stated."""
    return count if count > 1 else DEVICES.most


def site_id_count(site: Site, mode: str) -> int:
    """Return how many ids there are in a mode; 1 may also mean that it is not stated."""
    return id_count(mode, site.count("replica_count"), site.count("num_partitions"))


def site_most_ids(site: Site, mode: str) -> int:
    """Return how many ids there may be in a mode, each of which may stand for several devices."""
    count, devices = site_id_count(site, mode), site.count("replica_count") * site.count("num_partitions")
    if count == 1 < devices and mode == CROSS_PARTITION:
        # See ``_devices_of``.
        return devices
    return count if count > 1 else DEVICES.most // max(1, devices)


def group_size(site: Site, mode: str) -> int:
    """Return how many devices a group joins; 1 may also mean that it is not stated."""
    groups = stated_groups(site.attributes)
    # Groups list replicas in the mode of both: all partitions of each take part.
    size = len(groups[0]) if groups else site_id_count(site, mode)
    return size * site.count("num_partitions") if mode == CROSS_REPLICA_AND_PARTITION else size
