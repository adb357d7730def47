"""A process whose children write every kind of output again and again until they are killed.

``python -m tests.robust.writers FOLDER COUNT SEED`` makes a folder for each of COUNT children.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

import tpusim
from tpusim import export, plot
from tpusim.numerics.files import write_arrays
from tpusim.pipeline.result import Result
from tpusim.program.stored import save_program
from tpusim.report.json.run import save_links, save_result
from tpusim.report.scale_sim import write_reports
from tpusim.study.table import write_csv

PROGRAM = Path(__file__).parents[2] / "traces" / "mlp_b1024.v5e.hlo.txt.gz"
_LONGEST_SECONDS = 0.15


def writers(result: Result) -> list[Callable[[], object]]:
    """Return what writes each kind of output into the current folder."""
    figure = plot.roofline(result)
    rows = [{"a": number, "b": "x" * 50} for number in range(2000)]
    return [
        lambda: result.module.save("module.hlo.txt.gz"),
        lambda: result.module.save("module.hlo.txt"),
        lambda: save_program(result.program, "program.json"),
        lambda: save_result(result.summary, "result.json"),
        lambda: save_links(result.pod, "links.json"),
        lambda: export.html(result, "run.html"),
        lambda: export.perfetto(result, "trace.json.gz"),
        lambda: export.model_explorer(result, "graph.json"),
        lambda: export.accelergy(result, "counts.yaml"),
        lambda: export.xprof(result, "profile"),
        lambda: write_arrays("values.npz", {"in0": np.ones((300, 300), np.float32)}),
        lambda: write_csv(rows, "rows.csv"),
        lambda: write_reports({"REPORT.csv": "a, b,\n" * 20_000}, Path("reports")),
        lambda: plot.save(figure, "roof.png"),
        lambda: plot.save(figure, "roof.svg"),
    ]


def main() -> None:
    """Kill one child after the other at a random moment."""
    folder, count, moments = Path(sys.argv[1]), int(sys.argv[2]), Random(int(sys.argv[3]))
    kinds = writers(tpusim.simulate(PROGRAM))
    for number, write in enumerate(kinds):
        (folder / f"whole_{number}").mkdir()
        os.chdir(folder / f"whole_{number}")
        write()
    for number in range(count):
        own = folder / str(number)
        # A file stands there already, which children are most likely to be writing when they end.
        first = number % len(kinds)
        shutil.copytree(folder / f"whole_{first}", own)
        os.chdir(own)
        child = os.fork()
        if not child:
            while True:
                for write in (*kinds[first:], *kinds[:first]):
                    write()
        time.sleep(moments.uniform(0, _LONGEST_SECONDS))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
