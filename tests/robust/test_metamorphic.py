"""What must not matter does not: each relation of ``metamorphic``, on programs of all kinds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.robust.metamorphic.case import Case, Skip
from tests.robust.metamorphic.relations import RELATIONS, violations

ROOT = Path(__file__).parents[2]
TIMED = "mlp_b1024.v5e lstm_b64t128.v5e sampler_v32000.v6e sort_kv_1m.v5e linalg_512.v7x gnn_n4096.v7x pipeline.v5e_4x4"
COMPUTED = "attention attention.v5e cond.v5e conv_grads moe_dispatch moe_dispatch.v5e"
PROGRAMS = [
    *(f"traces/{name}" for name in TIMED.split()),
    *(f"tests/data/numeric/{name}" for name in COMPUTED.split()),
    # Copies are under way across a loop that makes its own.
    "tests/data/hlo/loop_beside_copy.v5e",
]


@cache
def case(name: str) -> Case:
    """Return a program of the project, read once for all relations."""
    return Case(ROOT / f"{name}.hlo.txt.gz")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:a constant")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_relations_hold(name, relation):
    """A relation that says nothing about a program is left out."""
    try:
        assert violations(case(name), relation) == []
    except Skip as reason:
        pytest.skip(str(reason))
