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

    def tool(name: str, **options: str) -> str:
        data = xspace_to_tool_data([path], name, options)[0]
        return data.decode() if isinstance(data, bytes) else data

    # As the page does first; it also lays the programs out for the memory viewer.
    xspace_to_tool_names([path])
    program = next(Path(path).parent.glob("*.hlo_proto.pb")).name.removesuffix(".hlo_proto.pb")
    overview = json.loads(tool("overview_page"))[0]["p"]
    stats = json.loads(tool("hlo_stats"))
    column = [entry["id"] for entry in stats["cols"]].index("total_self_time")
    memory = json.loads(tool("memory_viewer", module_name=program, memory_space="0"))
    found = {
        "time_us": sum(row["c"][column]["v"] for row in stats["rows"]),
        "mxu_percent": float(overview["mxu_utilization_percent"].rstrip("%")),
        "hbm_percent": float(overview["hbm_utilization_percent"].rstrip("%")),
        "peak_hbm_bytes": memory["peakHeapMib"] * MIB,
        "sizes": {name: len(tool(name)) for name in TABLES} | {"heap": len(memory["maxHeap"])},
    }
    sys.stdout.write(json.dumps(found))


main(sys.argv[1])
