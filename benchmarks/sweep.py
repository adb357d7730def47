"""How many points a second a study runs, with reuse and without: ``python benchmarks/sweep.py [MACHINES PROGRAM ...]``.

The machines are a grid of HBM bandwidth, arrays, VMEM and clock. Without reuse only some of them are run.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

from tpusim.study.study import Study

TRACES = Path(__file__).parents[1] / "traces"
PROGRAMS = [
    str(TRACES / name)
    for name in (
        *("bert_base_b32t128.v3.hlo.txt.gz", "dlrm_b2048.v5p.hlo.txt.gz", "gnn_n4096.v7x.hlo.txt.gz"),
        *("gpt2_fwd_b8t1024.v5p.hlo.txt.gz", "llama1b_decode_b16s2048.v6e.hlo.txt.gz", "lstm_b64t128.v5e.hlo.txt.gz"),
        *("llama8b_decode_tp.v5e_2x4.hlo.txt.gz", "mlp_b1024.v5e.hlo.txt.gz", "resnet50_fwd_b32.v4.hlo.txt.gz"),
        "resnet50_train_b64.v5e.hlo.txt.gz",
    )
]
SHARE_WITHOUT_REUSE = 10


def cpu_seconds() -> float:
    """Return what this process and those that it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(programs: list[str], machines: int, reuse: bool) -> None:
    """Run a study and print how long that took."""
    rates = max(1, machines // 40)
    axes = {
        "hbm.bandwidth_bytes_per_second": {"log": ["400G", "4T", rates]},
        "mxu.count": ["x1", "x2", "x3", "x4"],
        "vmem.capacity_bytes": ["x1", "x1.5", "x2", "x3", "x4"],
        "clock_hz": ["x1", "x1.5"],
    }
    begin, before = time.perf_counter(), cpu_seconds()
    study = Study(programs=programs, axes=axes, reuse=reuse).run()
    rows = study.rows()
    study.close()
    seconds, used = time.perf_counter() - begin, cpu_seconds() - before
    done = sum(row["status"] == "ok" for row in rows)
    word = "with" if reuse else "without"
    print(f"{word} reuse: {len(rows)} points ({done} ok) in {seconds:.1f} s, {used:.1f} s of {os.cpu_count()} cores: "
          f"{len(rows) / seconds:.1f} points a second, {1e3 * used / len(rows):.1f} ms each")  # fmt: skip


if __name__ == "__main__":
    machines = int(sys.argv[1]) if sys.argv[1:] else 200
    run(sys.argv[2:] or PROGRAMS, machines, reuse=True)
    run(sys.argv[2:] or PROGRAMS, machines // SHARE_WITHOUT_REUSE, reuse=False)
