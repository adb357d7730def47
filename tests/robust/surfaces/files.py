"""Tables and other files: layers, SCALE-Sim's configurations, indexes, arrays, saved results, tables of points."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from random import Random

import numpy as np

from tests.robust.contract import pick, surface
from tests.robust.grammar import LAYERS, sentences
from tests.robust.mutations import encoded, mutated_bytes, mutated_text, mutated_tree
from tests.robust.programs import ROOT, linked
from tests.robust.surfaces.options import run_command
from tpusim.analysis.compare import compare, load_result
from tpusim.hardware.array import Array
from tpusim.hardware.scale_config import load_scale_config
from tpusim.numerics.files import read_arrays, take_inputs
from tpusim.pipeline.layers import run_layers, run_layers_with_memory
from tpusim.pipeline.stages import simulate
from tpusim.plot import read_csv
from tpusim.program.layers import Layer, load_layers
from tpusim.report.json.run import save_result
from tpusim.shapes.notation import parse_shape
from tpusim.validation.collectives import predict_collectives
from tpusim.validation.kernels import read_cases
from tpusim.validation.memory import validate_memory
from tpusim.validation.times import load_chip


def _written(content: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@surface("layers", sentences(LAYERS), 6)
def take_layers(content: bytes, folder: Path) -> None:
    """Read a CSV file of layers and say what each takes on an array, by both models."""
    layers = load_layers(_written(content, folder, "case.csv"))
    array = Array(rows=8 << pick(content, 6), columns=8, dataflow=("ws", "os", "is")[pick(content, 3)])
    run_layers(layers, array)
    # It goes through the operands, filled up to whole folds, and so has them in memory.
    longest = max((max(layer.m, layer.n, layer.k) for layer in layers), default=0)
    if sum(layer.macs for layer in layers) < 1e5 and longest * array.rows < 1e6:
        run_layers(layers, array, "cycle")


_CONFIGS = tuple(
    "[general]\nrun_name = run\n[architecture_presets]\nArrayHeight: 32\nArrayWidth: 16\nIfmapSramSzkB: 64\n"
    f"FilterSramSzkB: 64\nOfmapSramSzkB: 64\nDataflow: {flow}\n{more}"
    for flow, more in (
        ("ws", "Bandwidth: 10\nInterfaceBandwidth: USER\n"),
        ("os", "InterfaceBandwidth: CALC\n[sparsity]\nSparsitySupport: True\nSparseRep: csr\n"),
    )
)


@surface("scale-sim", lambda random: encoded(mutated_text(random, random.choice(_CONFIGS))), 4)
def take_config(content: bytes, folder: Path) -> None:
    """Read SCALE-Sim's configuration and run a layer on its array with its memories."""
    config = load_scale_config(_written(content, folder, "case.cfg"))
    run_layers_with_memory([Layer(name="one", m=20, n=30, k=40)], config.array, config.buffers)


@cache
def _indexes() -> tuple[str, ...]:
    paths = (ROOT / "traces" / name / "index.csv" for name in ("measured", "collectives", "memory"))
    return tuple("\n".join(path.read_text().split("\n")[:4]) + "\n" for path in paths)


@surface("index", lambda random: encoded(mutated_text(random, random.choice(_indexes()))), 4)
def take_index(content: bytes, folder: Path) -> None:
    """Read an index of measured times, and the programs that it names."""
    for name in ("measured", "memory"):
        for program in sorted((ROOT / "traces" / name).glob("*.gz"))[:8]:
            linked(folder, program.name, f"traces/{name}/{program.name}")
    path = _written(content, folder, "index.csv")
    if b"topology" in content[:40]:
        predict_collectives(path, load_chip, None)
    elif b"temp_size" in content:
        validate_memory([path])
    else:
        read_cases(path)


_OF_STEPS = (
    "name,program,chip,topology,measured_us,low,high,use,family,source,timing,differs\n"
    "a,mlp.v5e.hlo.txt.gz,v5e,v5e:2x2,1500.5,1400,1600,good,steps,us,log_step,\nb,mlp.v5e.hlo.txt.gz,v5e,,1e3,900,1e3,"
    "fair: rewritten,steps,,device_trace,more\n"
)
_OF_POWER = (
    "chip,least_w,mean_w,most_w,of,source,programs\nv5e,,66,,all hours,us,mlp.v5e.hlo.txt.gz mlp.v5e.hlo.txt.gz\n"
    "v4,121,170,192,programs,us,mlp.v5e.hlo.txt.gz\n"
)
_OF_KERNELS = (
    "program,op,chip,dtype,shapes,measured_us,what,launch_floor_us,samples\n"
    "mlp.v5e.hlo.txt.gz,add,v5e,f16,[],1.5,kernel,,20\nmlp.v5e.hlo.txt.gz,dot,v5e,bf16,[[8]],90,host_wall,80,5\n"
)
_VALIDATED = {
    "--steps": _OF_STEPS,
    "--power": _OF_POWER,
    "--compiled": "program,compiled\nmlp.hlo.txt.gz,mlp.v5e.hlo.txt.gz\nmlp.hlo.txt.gz,mlp.v5e.hlo.txt.gz\n",
    "--json": _OF_KERNELS,
}


def _validated(random: Random) -> bytes:
    option = random.choice([*_VALIDATED])
    return option.encode() + b"\n" + encoded(mutated_text(random, _VALIDATED[option]))


@surface("validated", _validated, 2)
def take_validated(content: bytes, folder: Path) -> None:
    """Hold programs against an index of what was measured, as a command that prints it."""
    for name, source in (("mlp.v5e", "mlp_b1024.v5e"), ("mlp", "unscheduled/mlp_b1024")):
        linked(folder, f"{name}.hlo.txt.gz", f"traces/{source}.hlo.txt.gz")
    option, _, table = content.partition(b"\n")
    run_command(["validate", option.decode(), str(_written(table, folder, "index.csv")), "--outside"], folder)


@cache
def _archives() -> tuple[bytes, ...]:
    found = []
    for save in (np.savez, np.savez_compressed):
        out = io.BytesIO()
        save(out, in0=np.ones((4, 8), np.float32), in1=np.arange(6), in2_bf16=np.zeros(3, np.float32))
        found.append(out.getvalue())
    return tuple(found)


@surface("arrays", lambda random: mutated_bytes(random, random.choice(_archives())), 4)
def take_arrays(content: bytes, folder: Path) -> None:
    """Read an ``.npz`` file as the inputs of a program."""
    shapes = [parse_shape(text) for text in ("f32[4,8]", "s64[6]", "bf16[3]")]
    take_inputs(read_arrays(_written(content, folder, "case.npz")), shapes)


@cache
def _saved() -> str:
    path = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp") / "tpusim_robust_saved.json"
    save_result(simulate(ROOT / "traces" / "mlp_b1024.v5e.hlo.txt.gz").summary, path)
    text = path.read_text()
    path.unlink()
    return text


def _saved_text(random: Random) -> bytes:
    if random.random() < 0.2:
        return encoded(mutated_text(random, _saved()))
    return encoded(json.dumps(mutated_tree(random, json.loads(_saved()))))


@surface("saved", _saved_text, 4)
def take_saved(content: bytes, folder: Path) -> None:
    """Read a saved result and compare it with itself, as pages show it."""
    from tpusim.report.json.page import json_text
    from tpusim.report.json.run import comparison_page

    found = load_result(_written(content, folder, "case.json"))
    json_text(comparison_page(compare(found, found)))


_POINTS = ("program,clock_hz,time_us,area_mm2\na,1e9,30.5,100\na,2e9,20.25,120\nb,1e9,7,100\n",)


def _points(random: Random) -> bytes:
    text = encoded(mutated_text(random, random.choice(_POINTS)))
    return text if random.randrange(4) else mutated_bytes(random, text)


@surface("points", _points, 1)
def take_points(content: bytes, folder: Path) -> None:
    """Read a table of designs, and draw those of one in eight, which takes a thousand times as long."""
    from matplotlib import pyplot

    from tpusim import plot

    rows = read_csv(_written(content, folder, "case.csv"))
    if pick(content, 8):
        return
    try:
        plot.save(plot.pareto(rows, "area_mm2", "time_us", "program"), folder / "case.svg")
    finally:
        pyplot.close("all")
