"""The pictures that tests look at: one of each kind, of data written by hand, which no fit of the model moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import structs

from tpusim import plot
from tpusim.analysis.explained.grid import GridWindow, KernelGrid, Span
from tpusim.analysis.explanation import Explanation, explanation
from tpusim.analysis.memory import MemoryProfile
from tpusim.hardware.array import Array
from tpusim.hardware.load import load_chip
from tpusim.pipeline.layers import run_layers
from tpusim.program.buffers import Buffer
from tpusim.program.compilation import TriedTiles
from tpusim.program.layers import Layer
from tpusim.program.steps import Kernel, TileLoop
from tpusim.report.plots import links as plot_links
from tpusim.report.plots import memory as plot_memory
from tpusim.report.plots import roofline as plot_roofline
from tpusim.report.plots import timeline as plot_timeline
from tpusim.report.plots import utilisation as plot_utilisation
from tpusim.report.plots.style import Figure
from tpusim.timeline.records import LinkUse, PodRun, Record, Repeat, Timeline

US = 1_000_000
MIB = 2**20


def kernel(name: str, start: float, end: float, bound: str, **details: object) -> Record:
    """Return a kernel's record from ``start`` to ``end`` microseconds that spends all of its time on ``bound``."""
    begin_ps, end_ps = round(start * US), round(end * US)
    facts = {"category": "loop fusion", "source": f"model.py:{len(name)}", "parts": {bound: end_ps - begin_ps}}
    return Record(
        name=name, opcode="fusion", row="core", start_ps=begin_ps, end_ps=end_ps, bound_by=bound, is_kernel=True,
        **(facts | details),  # type: ignore[arg-type]
    )  # fmt: skip


def run() -> Timeline:
    """Return a run of 400 us: a copy waited for, a product, element-wise work, and a loop whose last trips repeat."""
    product = {"flops": 1.5e10, "activity": {"hbm": 4e7}, "units": {"matrix": 90 * US, "hbm": 50 * US, "load": 9 * US}}
    copy = Record(
        name="copy-start", opcode="copy-start", category="async copy", row="dma", start_ps=0, end_ps=30 * US,
        bound_by="HBM", activity={"hbm": 2e7}, units={"hbm": 27 * US},
    )  # fmt: skip
    wait = Record(
        name="copy-done", opcode="copy-done", category="wait", row="core", start_ps=0, end_ps=30 * US,
        bound_by="waiting for a copy",
    )  # fmt: skip
    records = (
        copy,
        wait,
        kernel("convolution_add_fusion", 30, 130, "matrix", **product),
        kernel(
            "loop_fusion.7", 130, 170, "HBM", flops=4e6, activity={"hbm": 3e7}, units={"hbm": 38 * US, "vector": 8 * US}
        ),
        kernel(
            "tanh.3",
            170,
            200,
            "vector",
            flops=5e7,
            activity={"load": 3e4, "store": 1e4},
            units={"vector": 27 * US, "eup": 20 * US, "load": 4 * US},
        ),
        kernel("copy.9", 200, 220, "HBM", activity={"hbm": 1.2e7}, units={"hbm": 15 * US}),
        kernel(
            "body_fusion.1", 220, 250, "matrix", count=5, flops=3e9, activity={"hbm": 2e6}, units={"matrix": 25 * US}
        ),
        kernel(
            "body_fusion.2", 250, 256, "latency", count=5, flops=1e4, activity={"hbm": 1e4}, units={"vector": 1 * US}
        ),
    )
    repeats = (Repeat("while.1", 256 * US, 400 * US, 4),)
    return Timeline(program="by_hand", chip="v5e", total_ps=400 * US, records=records, repeats=repeats)


def profiles() -> list[MemoryProfile]:
    """Return HBM with a heap above what is held, and VMEM in which a hole keeps two buffers apart."""
    hbm = (
        Buffer(name="p0", n_bytes=600 * MIB, space="hbm", kind="argument", first=0, last=9),
        Buffer(name="logits", n_bytes=400 * MIB, unpadded_bytes=150 * MIB, space="hbm", kind="temporary", first=1,
               last=5, offset_bytes=0, source="model.py:31"),
        Buffer(name="fusion.4", n_bytes=200 * MIB, space="hbm", kind="temporary", first=4, last=8,
               offset_bytes=400 * MIB),
    )  # fmt: skip
    vmem = (
        Buffer(name="weights", n_bytes=40 * MIB, space="vmem", kind="temporary", first=0, last=4, offset_bytes=0),
        Buffer(name="block", n_bytes=30 * MIB, space="vmem", kind="scratch", first=3, last=7, offset_bytes=60 * MIB),
    )
    return [_profile("hbm", hbm, 600 * MIB), _profile("vmem", vmem, 0)]


def _profile(space: str, buffers: tuple[Buffer, ...], held: int) -> MemoryProfile:
    """Return a profile over ten instructions."""
    alive = tuple(
        held + sum(b.n_bytes for b in buffers if b.kind != "argument" and b.first <= at <= b.last) for at in range(10)
    )
    end = max(b.offset_bytes + b.n_bytes for b in buffers if b.offset_bytes is not None)
    peak = max(alive)
    schedule = tuple(f"instruction.{n}" for n in range(10))
    return MemoryProfile(space, schedule, alive, held, end, alive.index(peak), peak, buffers)  # type: ignore[arg-type]


def pod(*sizes: int) -> PodRun:
    """Return a run of a torus whose links are the busier the higher the number of their chip."""
    count = 1
    for size in sizes:
        count *= size
    ways = [f"{sign}{axis}" for axis in range(len(sizes)) for sign in "+-"]
    links = tuple(LinkUse(chip, way, 1e6, (chip + 1) * 400 * US // count) for chip in range(count) for way in ways)
    return PodRun(sizes=sizes, slices=1, device_count=count, timelines=(run(),), links=links)


def designs() -> list[dict[str, object]]:
    """Return nine designs of an imaginary chip."""
    return [
        {
            "design": f"{count} MXU, {rate} TB/s",
            "cost (units)": 10 * count + 8 * rate,
            "time (ms)": 40 / count + 20 / rate,
        }
        for count in (1, 2, 4)
        for rate in (1, 2, 4)
    ]


def product() -> Explanation:
    """Return what is known of an imaginary product, of which many tiles were tried."""
    loops = [("rows",), ("rows", "columns"), ("rows", "depth"), ("columns", "depth")]
    made = [
        TriedTiles(
            tiles=2**power * len(over),
            loops=tuple(TileLoop(role, 2**power) for role in over),
            stated={},
            alone_ps=US * (40 + abs(power - 3) * 9 + 15 * number),
        )
        for number, over in enumerate(loops)
        for power in range(1, 9)
    ]
    tried = tuple(sorted(made, key=lambda one: one.alone_ps))
    record = kernel("fusion.7", 0, 49, "matrix")
    step = Kernel(name="fusion.7", opcode="fusion", tiles=32)
    found = explanation(step, load_chip("v5e"), {}, 0.0, (record, [record]), {}, stages=())
    return structs.replace(found, tried=tried)


def causal() -> KernelGrid:
    """Return an imaginary attention of two heads on four blocks each way, whose upper half is skipped."""
    rows, columns = np.indices((8, 4)).reshape(2, -1)
    below = columns <= rows % 4
    order = np.where(below, np.where(columns == 0, 2, 1), 0)
    block = {"space": "hbm", "block": (512, 128), "block_bytes": 131072.0, "seconds": 2e-7}
    windows = (
        GridWindow(name="q.1", is_output=False, new=columns == 0, **block),  # type: ignore[arg-type]
        GridWindow(name="k.1", is_output=False, new=below, **block),  # type: ignore[arg-type]
        GridWindow(name="o.1", is_output=True, new=columns == 0, **block),  # type: ignore[arg-type]
    )

    def excerpt(first: int) -> tuple[Span, ...]:
        begins = [1e-6 * (first + n) for n in range(3)]
        work = [Span(lane="compute", step=first + n, begin=b, end=b + 8e-7) for n, b in enumerate(begins)]
        waits = [Span(lane="in", step=first + n, begin=b, end=b + 3e-7) for n, b in enumerate(begins)]
        comes = [Span(lane="in", step=first, begin=b + 3e-7, end=b + 5e-7, window=1) for b in begins]
        goes = [Span(lane="out", step=first, begin=begins[1], end=begins[1] + 2e-7, window=2)]
        return (*work, *waits, *comes, *goes)

    return KernelGrid(
        name="attention.1", chip="v5e", cores=1, bounds=(2, 4, 4), semantics=("parallel", "parallel", "arbitrary"),
        order=order, cycles=(100.0, 2400.0, 2600.0), skipped=(True, False, False), windows=windows, alone_ps=32 * US,
        excerpts=(excerpt(0), excerpt(14), excerpt(29)),
    )  # fmt: skip


def chip_limits() -> dict[str, int]:
    """Return capacities of which one is near the peak and one far above it."""
    return {"hbm": 16 * 1024 * MIB, "vmem": 128 * MIB}


def runs() -> list[dict[str, object]]:
    """Return the rows of a study of four programs on twelve machines, of which one program fits some."""
    programs = {
        "bert.v3.hlo.txt.gz": 9.0,
        "gpt2.v5p.hlo.txt.gz": 5.0,
        "lstm.v5e.hlo.txt.gz": 1.0,
        "mlp.v6e.hlo.txt.gz": 0.4,
    }
    return [
        {
            "program": name,
            "mxu.count": count,
            "hbm.bandwidth": rate,
            "time_us": "" if rate > 1e12 and weight == 5.0 else 1e3 * weight * (1 / count + 5e11 / rate),
            "energy_j": weight * (0.1 + 0.02 * count + rate / 1e13),
        }
        for name, weight in programs.items()
        for count in (1, 2, 4)
        for rate in (4e11, 8e11, 1.6e12, 3.2e12)
    ]


CASES: dict[str, Callable[[], Figure]] = {
    "layout_figure_1": lambda: plot.layout("F32[3,5]{1,0:(2,2)}"),
    "layout_figure_2": lambda: plot.layout("bf16[4,8]{1,0:T(2,4)(2,1)}"),
    "layout_by_tile": lambda: plot.layout("bf16[10,300]{1,0:T(8,128)(2,1)}"),
    "layout_4_bits": lambda: plot.layout("s4[64,512]{1,0:T(8,128)(8,1)E(4)}"),
    "layout_8_bits": lambda: plot.layout("s8[100,200]{0,1:T(32,128)(4,1)}"),
    "layout_one_dimension": lambda: plot.layout("bf16[1000]{0:T(1024)(128)(2,1)}"),
    "layout_joined": lambda: plot.layout("f32[2,3,4]{2,1,0:T(*,2)}"),
    "layout_large": lambda: plot.layout("f32[32,1024,768]{2,1,0:T(8,128)}"),
    "relayout_small": lambda: plot.relayout("bf16[4,8]{1,0:T(2,4)(2,1)}", "bf16[4,8]{0,1:T(2,4)(2,1)}"),
    "relayout_large": lambda: plot.relayout("f32[512,1000]{1,0:T(8,128)}", "f32[512,1000]{0,1:T(8,128)}"),
    "timeline": lambda: plot_timeline.timeline(run()),
    "timeline_part": lambda: plot_timeline.timeline(run(), window_us=(100.0, 240.0)),
    "roofline": lambda: plot_roofline.roofline(run(), load_chip("v5e")),
    "memory": lambda: plot_memory.memory(profiles(), chip_limits(), "by_hand on v5e (simulated)"),
    "utilisation": lambda: plot_utilisation.utilisation(run(), by="op"),
    "tiles": lambda: plot.tiles(product()),
    "pallas": lambda: plot.pallas(causal()),
    "links_2d": lambda: plot_links.links(pod(4, 4)),
    "links_3d": lambda: plot_links.links(pod(4, 4, 4)),
    "systolic_weights_stay": lambda: plot.systolic(12, 7, 6),
    "systolic_sums_stay": lambda: plot.systolic(8, 8, 20, Array(rows=8, columns=8, dataflow="os")),
    "systolic_large": lambda: plot.systolic(300, 128, 128, Array(rows=128, columns=128), 200),
    "layers": lambda: plot.layers(
        run_layers([Layer(name=f"layer {n}", m=64 * n, n=100, k=200) for n in range(1, 5)], Array(rows=64, columns=64))
    ),
    "pareto": lambda: plot.pareto(designs(), "cost (units)", "time (ms)", "design"),
    "pareto_per": lambda: plot.pareto(runs(), "energy_j", "time_us", "mxu.count", per="program"),
    "sweep": lambda: plot.sweep(runs(), "hbm.bandwidth", "time_us", by="program"),
    "sweep_per": lambda: plot.sweep(runs(), "hbm.bandwidth", "time_us", by="mxu.count", per="program"),
    "sensitivities": lambda: plot.sensitivities(
        {
            name: [("hbm.bandwidth_bytes_per_second", 20 * n, -9 * n), ("mxu.count", 12, -15), ("clock_hz", 0, 0)]
            for n, name in enumerate(("bert_base_b32t128.v3.hlo.txt.gz", "resnet50_train_b64.v5e.hlo.txt.gz"), 1)
        },
        "energy (%)",
    ),
    "sensitivity": lambda: plot.sensitivity(
        [("hbm.bandwidth_bytes_per_second", 12.0, -8.0), ("mxu.count", 30.0, -5.5), ("clock_hz", 10.0, -3.0)]
    ),
}
"""Pictures by name; ``baselines/`` has what each looked like when somebody last looked at it."""
