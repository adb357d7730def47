"""Instructions of the cases with one thing changed (a size, a type, an operand, an attribute), against XLA's verdict.

``data/mutations.txt`` has one a line: of some ten thousand such changes, those by which most constraints are broken,
and for each opcode one that breaks none. Left out is what XLA's process does not survive, and what its CPU lacks.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.semantics.hlo import one, parse
from tpusim.errors import ProgramError
from tpusim.semantics.verify.module import verify_module

_hlo = pytest.importorskip("jaxlib._hlo")
_client = pytest.importorskip("jaxlib.xla_client")
MUTATIONS = (Path(__file__).parent.parent / "data" / "mutations.txt").read_text().splitlines()


@cache
def _cpu() -> Any:
    """Return the device for which XLA compiles."""
    return pytest.importorskip("jax").devices("cpu")[0]


def xla_refuses(text: str) -> str:
    """Return why XLA's parser, StableHLO's or XLA's verifier refuse a module; an empty string if they do not."""
    try:
        proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        code = _client._xla.mlir.hlo_to_stablehlo(proto)
        _cpu().client.compile_and_load(code, _client.DeviceList((_cpu(),)), _client.CompileOptions())
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


def we_refuse(text: str) -> str:
    """Return why we do; an empty string if we do not."""
    try:
        verify_module(parse(text))
    except ProgramError as error:
        return error.message
    return ""


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_our_verdict_is_xlas(mutation: str) -> None:
    """What either says against an instruction is told if they do not agree."""
    theirs, ours = xla_refuses(one(mutation)), we_refuse(one(mutation))
    assert bool(theirs) == bool(ours), (theirs, ours)
