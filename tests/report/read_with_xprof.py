"""Reads a profile with XProf's own converters and prints what its tools show.

A script of its own, since a bad file ends XProf's process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TABLES = ("framework_op_stats", "op_profile", "roofline_model", "trace_viewer", "pod_viewer")
MIB = 2**20


def main(path: str) -> None:
    """Print one JSON object."""
    # Inside, as only who has XProf can import it.
    from xprof.convert.raw_to_tool_data import xspace_to_tool_data, xspace_to_tool_names

    def tool(name: str, **options) -> str:
        data = xspace_to_tool_data([path], name, options)[0]
        return data.decode() if isinstance(data, bytes) else data

    # As the page does first; it also lays the programs out for the memory viewer.
    xspace_to_tool_names([path])
    program = next(Path(path).parent.glob("*.hlo_proto.pb")).name.removesuffix(".hlo_proto.pb")
    pages = json.loads(tool("overview_page"))
    overview, environment = pages[0]["p"], pages[2]["p"]
    stats = json.loads(tool("hlo_stats"))
    column = [entry["id"] for entry in stats["cols"]].index("total_self_time")
    memory = json.loads(tool("memory_viewer", module_name=program, memory_space="0"))
    kinds = [row["c"][2]["v"] for row in json.loads(tool("framework_op_stats"))[0]["rows"]]
    graph = {"module_name": program, "type": "graph", "format": "html", "graph_width": 2}
    longest = stats["rows"][0]["c"][[entry["id"] for entry in stats["cols"]].index("hlo_op_name")]["v"]
    drawn = tool("graph_viewer", graph_viewer_options=graph | {"node_name": longest})
    found = {
        "time_us": sum(row["c"][column]["v"] for row in stats["rows"]),
        "mxu_percent": float(overview["mxu_utilization_percent"].rstrip("%")),
        "hbm_percent": float(overview["hbm_utilization_percent"].rstrip("%")),
        "peak_hbm_bytes": memory["peakHeapMib"] * MIB,
        "sizes": {name: len(tool(name)) for name in TABLES}
        | {"heap": len(memory["maxHeap"]), "graph": drawn.count(longest)},
        "devices": int(environment["device_core_count"]),
        "is_training": environment["is_training"] == "true",
        "unknown_types": [kind for kind in kinds if kind in ("", "Unknown")],
    }
    sys.stdout.write(json.dumps(found))


main(sys.argv[1])
