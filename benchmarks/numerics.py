"""Computing values: our evaluator in TPU arithmetic beside the same function jitted by JAX on this CPU, in one run.

    python -m benchmarks.numerics [gpt2] [resnet50] [--rounds N]

Rounds alternate between the two, so that a busy machine slows both; the median counts. CPU seconds are those of all
threads: where others use the machine they say more than the time that passed. Both may use as many threads as the
process has cores: ``taskset -c 0 python -m benchmarks.numerics`` gives each one. The first call, in which JAX compiles
and ours loads its kernels, is printed apart. Memory is that of a run: the arguments, and what the process holds at its
peak beyond what it held before (Linux only). Needs ``jax``.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxlib import _hlo

from benchmarks.jax_models import gpt2, resnet50
from tpusim import numerics
from tpusim.numerics.evaluate import evaluate
from tpusim.numerics.site import Device, Settings
from tpusim.source import SourceText
from tpusim.text.literals import literal_values
from tpusim.text.parser import parse_module

if TYPE_CHECKING:
    from collections.abc import Callable

_SETTLING_SECONDS = 0.3

MODELS = {"gpt2": gpt2, "resnet50": resnet50}


class Measured(NamedTuple):
    """What a run took: seconds, CPU seconds of all threads, and bytes at its peak beyond those held before."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def main(arguments: list[str] | None = None) -> None:
    """Time both on each network and print medians, peak memory and their ratios."""
    parser = argparse.ArgumentParser(description="Time our evaluator beside JAX on the CPU.")
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per network (default: 5)")
    options = parser.parse_args(arguments)
    for file in walk_packages(numerics.__path__, "tpusim.numerics."):
        import_module(file.name)
    for name in options.models or MODELS:
        _report(name, options.rounds)


def _report(name: str, rounds: int) -> None:
    """Measure one network and print it."""
    function, arguments = MODELS[name]()
    jitted = jax.jit(function)
    flat = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    runs: dict[str, Callable[[], Any]] = {
        "JAX": lambda: jax.block_until_ready(jitted(*arguments)),
        "tpusim": _our_run(jitted, arguments, flat),
    }
    firsts = {who: _timed(run) for who, run in runs.items()}
    difference = _difference(*(np.asarray(run(), np.float32) for run in runs.values()))
    argument_bytes = sum(array.nbytes for array in flat)
    medians = {who: _median(measured, argument_bytes) for who, measured in _measure(runs, rounds).items()}
    threads = len(os.sched_getaffinity(0))
    sys.stdout.write(
        f"{name}: median of {rounds} on {threads} cores; greatest difference {difference:.1%} of the largest value\n"
        "                   wall          CPU       memory   first call, CPU\n"
    )
    for who, (seconds, cpu_seconds, peak_bytes) in medians.items():
        sys.stdout.write(
            f"  {who:8} {seconds * 1e3:9.1f} ms {cpu_seconds * 1e3:9.1f} ms {peak_bytes / 1e6:9.1f} MB"
            f" {firsts[who].cpu_seconds * 1e3:9.1f} ms\n"
        )
    ratios = [ours / theirs for ours, theirs in zip(medians["tpusim"], medians["JAX"], strict=True)]
    sys.stdout.write(f"  ratio    {ratios[0]:9.2f}    {ratios[1]:9.2f}    {ratios[2]:9.2f}\n")


def _our_run(jitted: Any, arguments: Any, flat: list[Any]) -> Callable[[], Any]:
    """Return what computes the jitted function from its HLO text, as a TPU would."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    computation = jitted.lower(*arguments).compiler_ir("hlo")
    module = parse_module(SourceText("benchmark", computation.as_hlo_module().to_string(options)))
    settings = Settings(read_literal=literal_values, precision="tpu")
    return lambda: evaluate(module, [flat], settings, [Device()])[0]


def _measure(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[Measured]]:
    """Run all in turn, ``rounds`` times."""
    measured: dict[str, list[Measured]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            # JAX gives memory back in threads of its own, a little after a run.
            time.sleep(_SETTLING_SECONDS)
            measured[name].append(_timed(run))
    return measured


def _timed(run: Callable[[], Any]) -> Measured:
    """Run once."""
    _forget_peak()
    held = _status_bytes("VmHWM")
    start, cpu_start = time.perf_counter(), time.process_time()
    result = run()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    peak_bytes = _status_bytes("VmHWM") - held
    del result
    return Measured(seconds, cpu_seconds, peak_bytes)


def _median(measured: list[Measured], argument_bytes: int) -> Measured:
    """Return the median times, and the median memory with the arguments."""
    seconds, cpu_seconds, peak_bytes = (statistics.median(column) for column in zip(*measured, strict=True))
    return Measured(seconds, cpu_seconds, argument_bytes + int(peak_bytes))


def _difference(reference: Any, found: Any) -> float:
    """Return the greatest difference as a share of the largest value."""
    return float(np.max(np.abs(found - reference)) / np.max(np.abs(reference)))


def _status_bytes(field: str) -> int:
    """Return a memory figure of this process."""
    text = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", text)
    return int(found[1]) * 1024 if found else 0


def _forget_peak() -> None:
    """Let the peak of resident memory begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
