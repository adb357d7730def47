"""What sums over devices have in common that can be one."""

from __future__ import annotations

from tpusim.draft import Draft, Node
from tpusim.ir.ops import SUMS
from tpusim.semantics.combining import sole_opcode
from tpusim.semantics.device_groups import stated_groups
from tpusim.shapes.shape import ArrayShape


def kind_of(draft: Draft, node: Node) -> object:
    """Return what is equal for sums that can be one; None for no sum, or one that does more than one operation.

    Source: XLA, GetAllReduceKey.
    """
    is_single = node.opcode in SUMS and isinstance(node.shape, ArrayShape)
    opcode = sole_opcode(draft.graphs, node.attributes["to_apply"]) if is_single else ""
    if not opcode:
        return None
    flags = (str(node.attributes.get(name)) for name in ("use_global_device_ids", "constrain_layout", "dimensions"))
    has_channel = "channel_id" in node.attributes
    return node.opcode, node.array.dtype, opcode, has_channel, stated_groups(node.attributes), *flags
