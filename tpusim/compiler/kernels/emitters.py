"""Between fusion and tiles: how products are computed whose depth would leave a matrix unit nearly empty.

Source: programs compiled ahead of time, where sums of up to 8 terms with the rows in lanes (the short factor of a
Fourier transform) have the emitter named here, and of 16 terms and more another one.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any

from tpusim.compiler.target import Target
from tpusim.draft import Draft, Node
from tpusim.ir.attributes import BackendConfig, Raw

_ROWS_IN_LANES = "EmitInputFeaturePackedInputBatchInLanes"


def choose_emitters(draft: Draft, target: Target) -> None:
    """State the emitter of every kernel whose product has few terms, and its rows in lanes."""
    for graph in draft.running():
        for node in graph.order():
            inside = draft.graphs[node.attributes["calls"]].order() if node.opcode == "fusion" else [node]
            dots = [inner for inner in inside if inner.opcode == "dot"]
            if len(dots) == 1 and _has_rows_in_lanes(dots[0], target.chip.vpu.sublanes):
                state(node, {"convolution_algorithm_config": {"emitter": _ROWS_IN_LANES}})


def state(node: Node, fields: dict[str, Any]) -> None:
    """Add to what a kernel's ``backend_config`` states."""
    if not fields:
        return
    known = BackendConfig.decode(node.attributes.get("backend_config", "")).fields
    node.attributes = node.attributes | {"backend_config": Raw(json.dumps(known | fields))}


def _has_rows_in_lanes(dot: Node, most_terms: int) -> bool:
    left = dot.operands[0].array
    depth = dot.attributes.get("lhs_contracting_dims", ())
    minor = left.actual_layout.minor_to_major[:1]
    rows = set(range(left.rank)) - set(depth) - set(dot.attributes.get("lhs_batch_dims", ()))
    return prod(left.dimensions[d] for d in depth) <= most_terms and bool(rows.intersection(minor))
