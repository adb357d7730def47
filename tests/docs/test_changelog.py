"""What the changelog says in figures that a run gives."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

import tpusim

ROOT = Path(__file__).parents[2]
LONGER = re.compile(r"DLRM compiled anew for a v5e takes (\d+) % longer with (\d+) MiB of VMEM than with (\d+)")


@pytest.mark.slow
def test_more_memory_may_be_slower_where_a_table_comes_in_whole():
    """By so much, and with the smaller memory nothing is fetched across programs."""
    ((more, *sizes),) = LONGER.findall(" ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split()))
    program = tpusim.load(ROOT / "traces/dlrm_b2048.v5p.hlo.txt.gz")
    figures = [{"vmem.capacity_bytes": int(size) << 20} for size in sizes]
    run = partial(tpusim.simulate, program, "v5e", schedule="compiled")
    large_us, small_us = (run(overrides=each, warm=True).time_us for each in figures)
    assert f"{large_us / small_us - 1:.0%}" == f"{more}%"
    large_ps, small_ps = (run(overrides=each).summary.prefetch_wait_ps for each in figures)
    assert large_ps > small_ps == 0
