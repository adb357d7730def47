"""Systolic arrays: our closed form and our cycle-by-cycle model beside SCALE-Sim v3 on the same layers, in one run.

    python -m benchmarks.systolic --scalesim ENV/bin/python

ENV is an environment of its own with ``pip install scalesim==3.0.0 "numpy<2.4"``; SCALE-Sim takes half an hour and
eleven gigabytes. Without it, its figures are those of an earlier run, and marked so. All on one 128 x 128 array. CPU
seconds of whole processes, but for the lines "once started" (reading the file and pricing it) and those with SRAMs
(reading, pricing, and going through the SRAMs). Numba's cache is warm.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tpusim.hardware.array import Array
from tpusim.hardware.buffers import Buffers, Rates
from tpusim.pipeline.layers import run_layers, run_layers_with_memory
from tpusim.program.layers import load_layers

LAYERS = Path(__file__).parent / "layers"
RESNET, BERT = LAYERS / "resnet50.csv", LAYERS / "bert_base_layer.csv"
ROUNDS = 20
_WORDS_PER_CYCLE = 10
_SRAM_WORDS = {"ifmap_words": 4096 * 1024, "filter_words": 4096 * 1024, "ofmap_words": 8192 * 1024}
"""As in the configuration below."""


class Measured(NamedTuple):
    """What a process took, and the cycles that it found."""

    cpu_seconds: float
    peak_bytes: int
    cycles: int


class Case(NamedTuple):
    """What SCALE-Sim is given: layers, dataflow and how DRAM's bandwidth is stated."""

    path: Path
    dataflow: str = "ws"
    mode: str = "CALC"


EARLIER = {
    Case(RESNET): Measured(139.2, 8_618_000_000, 876_832),
    Case(RESNET, "os"): Measured(154.9, 7_268_000_000, 611_561),
    Case(RESNET, "is"): Measured(202.3, 9_779_000_000, 997_762),
    Case(RESNET, "ws", "USER"): Measured(293.6, 10_881_000_000, 1_822_546),
    Case(RESNET, "os", "USER"): Measured(273.6, 8_704_000_000, 1_766_597),
    Case(BERT): Measured(105.7, 4_631_000_000, 472_002),
}
"""SCALE-Sim 3.0.0 on two cores of a shared machine; those of CALC and ``ws`` are medians of three runs."""

_SCALESIM = """\
import sys
from scalesim.scale_sim import scalesim
config, topology, layout, out, gemm = sys.argv[1:]
scalesim(save_disk_space=True, verbose=False, config=config, topology=topology, layout=layout,
         input_type_gemm=gemm == "True").run_scale(top_path=out)
"""

# Every key is needed, also those of what is switched off.
_CONFIG = """\
[general]
run_name = benchmark
[architecture_presets]
ArrayHeight: 128
ArrayWidth: 128
IfmapSramSzkB: 4096
FilterSramSzkB: 4096
OfmapSramSzkB: 8192
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Dataflow: {dataflow}
Bandwidth: 10
ReadRequestBuffer: 64
WriteRequestBuffer: 64
[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
[run_presets]
InterfaceBandwidth: {mode}
UseRamulatorTrace: False
"""


def main(arguments: list[str] | None = None) -> None:
    """Time both networks on both simulators and print the ratios."""
    parser = argparse.ArgumentParser(description="Time our systolic arrays beside SCALE-Sim v3.")
    parser.add_argument("--scalesim", metavar="PYTHON", help="Python of an environment that has scalesim 3.0.0")
    python = parser.parse_args(arguments).scalesim
    theirs = {case: _scalesim(python, case) if python else found for case, found in EARLIER.items()}
    _report_fast(theirs[Case(RESNET)], bool(python))
    _report_memory(theirs, bool(python))
    _report_cycles(theirs[Case(BERT)], bool(python))


def _report_fast(theirs: Measured, live: bool) -> None:
    """Print the closed form's figures: of the work alone, and of a command with its start-up."""
    seconds = _fast_seconds()
    command = _tpusim(RESNET, "scale-sim", "fast")
    sys.stdout.write("ResNet-50, 54 layers, 128 x 128, weight-stationary\n")
    _line(_name(live), theirs, theirs)
    _line("tpusim, once started", command._replace(cpu_seconds=seconds), theirs)
    _line("tpusim, with start-up", command, theirs)


def _report_memory(theirs: dict[Case, Measured], live: bool) -> None:
    """Print what ResNet-50 takes with SRAMs, by dataflow and by how DRAM's bandwidth is stated."""
    sys.stdout.write("ResNet-50 with SRAMs, 128 x 128\n")
    for case, found in theirs.items():
        if case.path == RESNET:
            _line(f"{case.dataflow} {case.mode}, {_name(live)}", found, found)
            _line(f"{case.dataflow} {case.mode}, tpusim", _with_memory(case), found)


def _report_cycles(theirs: Measured, live: bool) -> None:
    """Print the cycle-by-cycle model's figures; once before, so that nothing is compiled while it is timed."""
    sys.stdout.write(
        "BERT-base layer, 30 products, sequence 512, 128 x 128, weight-stationary; ours computes the values\n"
    )
    _line(_name(live), theirs, theirs)
    _run([sys.executable, "-m", "tpusim", "systolic", "--m", "1", "--n", "1", "--k", "1", "--model", "cycle"])
    for mode in ("scale-sim", "overlap"):
        _line(f"tpusim, {mode}", _tpusim(BERT, mode, "cycle"), theirs)


def _line(name: str, ours: Measured, theirs: Measured) -> None:
    """Print a line of figures, and how many times less CPU time than SCALE-Sim that is."""
    ratio = f"{theirs.cpu_seconds / ours.cpu_seconds:10,.0f} x" if ours is not theirs else ""
    memory = f"{ours.peak_bytes / 1e6:9,.0f} MB"
    sys.stdout.write(f"  {name:34} {ours.cpu_seconds:12.6f} s   {memory}   {ours.cycles:9,} cycles  {ratio}\n")


def _name(live: bool) -> str:
    """Return how a line of SCALE-Sim's is called."""
    return "SCALE-Sim 3.0.0" if live else "SCALE-Sim, earlier run"


def _fast_seconds() -> float:
    """Return the CPU seconds of reading ResNet-50's file and pricing its layers."""
    array = Array(rows=128, columns=128, mode="scale-sim")
    start = time.process_time()
    for _ in range(ROUNDS):
        run_layers(RESNET, array)
    return (time.process_time() - start) / ROUNDS


def _with_memory(case: Case) -> Measured:
    """Time reading the file, pricing it and going through its SRAMs as often as the closed form alone; warm."""
    rates = Rates(ifmap=_WORDS_PER_CYCLE, filter=_WORDS_PER_CYCLE, ofmap=_WORDS_PER_CYCLE)
    array = Array(rows=128, columns=128, dataflow=case.dataflow, mode="scale-sim")
    buffers = Buffers(**_SRAM_WORDS, rates=rates if case.mode == "USER" else None)
    run_layers_with_memory(load_layers(case.path), array, buffers)
    start = time.process_time()
    for _ in range(ROUNDS):
        layers = load_layers(case.path)
        run_layers(layers, array)
        found = run_layers_with_memory(layers, array, buffers)
    used = (time.process_time() - start) / ROUNDS
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Measured(used, peak, sum(memory.cycles for memory in found))


def _tpusim(path: Path, mode: str, model: str) -> Measured:
    """Run our command on a file of layers."""
    command = [sys.executable, "-m", "tpusim", "systolic", "--layers", str(path), "--mode", mode, "--model", model]
    cpu_seconds, peak_bytes, text = _run(command)
    total = next(line for line in text.splitlines() if line.startswith("total"))
    return Measured(cpu_seconds, peak_bytes, int(total.split()[2].replace(",", "")))


def _scalesim(python: str, case: Case) -> Measured:
    """Run SCALE-Sim on a file of layers."""
    with TemporaryDirectory() as folder:
        text = _CONFIG.format(dataflow=case.dataflow, mode=case.mode)
        files = {"config.cfg": text, "layout.csv": "Layer\n", "run.py": _SCALESIM}
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        config, layout, script = (str(Path(folder) / name) for name in files)
        cpu_seconds, peak_bytes, _ = _run(
            [python, script, config, str(case.path), layout, folder, str(case.path == BERT)]
        )
        with (Path(folder) / "benchmark" / "COMPUTE_REPORT.csv").open() as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    return Measured(cpu_seconds, peak_bytes, sum(int(float(row["Total Cycles"])) for row in rows))


def _run(command: list[str]) -> tuple[float, int, str]:
    """Run a command; return its CPU seconds, the most memory that it held, and what it printed."""
    with TemporaryDirectory() as folder, (Path(folder) / "out").open("w+") as out:
        process = subprocess.Popen(command, stdout=out)
        # Not process.wait(), which does not say what the process used.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: ended with exit code {process.returncode}")
        out.seek(0)
        return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, out.read()


if __name__ == "__main__":
    main()
