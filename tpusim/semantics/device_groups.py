"""Which devices work together: groups and pairs as numbers of devices, whatever they count in the text.

Device numbers are replica times partitions plus partition. Source: XLA, ``CollectiveOpGroupMode``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tpusim.program.steps import Algorithm
from tpusim.semantics import group_modes as infer_groups
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.semantics.infer.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpusim.ir.module import Instruction, Module

    Groups = tuple[tuple[int, ...], ...]

_PAIRS_ATTRIBUTE = "_xla_send_recv_source_target_pairs"
_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")
_COLORS = re.compile(r"colors:(\d+)")


def device_groups(module: Module, collective: Instruction) -> Groups:
    """Return the groups of devices of a collective; no groups in the text mean one of all ids of its mode."""
    replicas, partitions = (int(module.attributes.get(name, 1)) for name in ("replica_count", "num_partitions"))
    mode = _mode(collective)
    stated = collective.attributes.get("replica_groups")
    everyone = {infer_groups.CROSS_PARTITION: partitions, infer_groups.FLATTENED_ID: replicas * partitions}
    groups = stated.groups if stated is not None else ()
    return _BY_MODE[mode](groups or (tuple(range(everyone.get(mode, replicas))),), replicas, partitions)


def _mode(collective: Instruction) -> str:
    """Return what the ids of a collective count."""
    asked = Site(collective, (), None)
    asked.opcode = collective.opcode.removesuffix("-start")
    return infer_groups.group_mode(asked)


def _across_replicas(groups: Groups, replicas: int, partitions: int) -> Groups:
    """Return for each group of replicas one group of devices per partition."""
    return tuple(tuple(r * partitions + p for r in group) for group in groups for p in range(partitions))


def _across_partitions(groups: Groups, replicas: int, partitions: int) -> Groups:
    """Return for each group of partitions one group of devices per replica."""
    return tuple(tuple(r * partitions + p for p in group) for r in range(replicas) for group in groups)


def _across_both(groups: Groups, replicas: int, partitions: int) -> Groups:
    """Return for each group of replicas the devices of all their partitions."""
    return tuple(tuple(r * partitions + p for r in group for p in range(partitions)) for group in groups)


_BY_MODE: dict[str, Callable[[Groups, int, int], Groups]] = {
    infer_groups.CROSS_REPLICA: _across_replicas,
    infer_groups.CROSS_PARTITION: _across_partitions,
    infer_groups.CROSS_REPLICA_AND_PARTITION: _across_both,
    infer_groups.FLATTENED_ID: lambda groups, replicas, partitions: groups,
}


def device_pairs(module: Module, collective: Instruction) -> tuple[tuple[int, int], ...]:
    """Return the pairs of devices of a permute; none for other collectives."""
    stated = collective.attributes.get("source_target_pairs")
    return _paired(module, stated, "channel_id" in collective.attributes) if stated else ()


def stated_pairs(module: Module, transfer: Instruction) -> tuple[tuple[int, int], ...] | None:
    """Return who sends to whom over a send's or receive's channel, None where its attributes do not say."""
    raw = frontend_attributes(transfer.attributes).get(_PAIRS_ATTRIBUTE)
    if raw is None:
        return None
    pairs = [(int(source), int(target)) for source, target in _PAIR.findall(raw)]
    return _paired(module, pairs, int(module.attributes.get("num_partitions", 1)) > 1)


def _paired(module: Module, pairs: Iterable[tuple[int, int]], of_partitions: bool) -> tuple[tuple[int, int], ...]:
    """Return pairs of replicas or of partitions as pairs of devices."""
    replicas, partitions = (int(module.attributes.get(name, 1)) for name in ("replica_count", "num_partitions"))
    pairs = [(int(source), int(target)) for source, target in pairs]
    if of_partitions:
        return tuple((r * partitions + s, r * partitions + t) for r in range(replicas) for s, t in pairs)
    return tuple((s * partitions + p, t * partitions + p) for s, t in pairs for p in range(partitions))


def algorithm_of(collective: Instruction) -> Algorithm | None:
    """Return how the compiler carries a collective out, None where it does not say.

    Nobody documents the names; read here: ``1D`` and plain ``Ring`` strategies go round one ring, ``ND`` ones along
    every axis; a colour is a ring that works in both directions, or in one where the name says ``UniDirection``.
    """
    config = collective.backend_config.fields.get("collective_algorithm_config")
    if not isinstance(config, dict) or not config.get("emitter"):
        return None
    emitter, strategy = str(config["emitter"]), str(config.get("strategy", ""))
    colors = _COLORS.search(str(config.get("debug", "")))
    rings = int(colors[1]) if colors else 0
    return Algorithm(
        name=f"{emitter} {strategy}".strip(),
        one_ring=emitter.startswith(("1D", "SinglePhase")) or ("Ring" in strategy and "ND" not in strategy),
        lanes=rings if "UniDirection" in strategy else 2 * rings,
        single_phase=emitter.startswith("SinglePhase"),
    )
