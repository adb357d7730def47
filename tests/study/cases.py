"""Small programs for studies."""

from __future__ import annotations

from tests.house.source_tree import ROOT
from tpusim.pipeline.modules import Builder, Module
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TRACES = ROOT / "traces"
MLP = str(TRACES / "mlp_b1024.v5e.hlo.txt.gz")
LSTM = str(TRACES / "lstm_b64t128.v5e.hlo.txt.gz")
BANDWIDTH = "hbm.bandwidth_bytes_per_second"
SLICES = ["v5e:2x2", "v5e:2x4"]
SMALL_GRID = {BANDWIDTH: ["x1", "x2"], "vmem.capacity_bytes": ["32Mi", "x1"]}


def tanh_of(batch: int) -> Module:
    """Return a module that nobody has compiled, of some rows."""
    b = Builder("tanh")
    return b.build(b.tanh(b.parameter(0, f"f32[{batch},1024]")))


def kernel_module(name: str = "m", partitions: int = 1) -> Module:
    """Return a scheduled module of one kernel, which fits everywhere, on so many devices."""
    text = (
        f"HloModule {name}, is_scheduled=true, num_partitions={partitions}\n\n"
        "ENTRY %main {\n  %x = f32[1024,1024]{1,0:T(8,128)} parameter(0)\n"
        "  ROOT %y = f32[1024,1024]{1,0:T(8,128)} tanh(%x)\n}\n"
    )
    return parse_module(SourceText(f"{name}.v5e.hlo.txt", text))
