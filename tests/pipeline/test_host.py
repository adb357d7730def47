"""What a program has the host do and a run does not have is said."""

from __future__ import annotations

import pytest

import tpusim
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

HOST = ', frontend_attributes={_xla_compute_type="host"}'
TEXT = """HloModule m{header}

ENTRY e {{
  x = f32[512,512] parameter(0)
  y = f32[512,512] sine(x){of_sine}
  z = f32[512,512] {move}
  ROOT w = f32[512,512] dot(x, z), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
THREAD = """HloModule m, is_scheduled=true

host {
  p = f32[512,512]{1,0:T(8,128)} parameter(0)
  ROOT s = f32[512,512]{1,0:T(8,128)} sine(p)
}, execution_thread="host"

ENTRY e {
  x = f32[512,512]{1,0:T(8,128)} parameter(0)
  a = ((f32[512,512]{1,0:T(8,128)}), f32[512,512]{1,0:T(8,128)}, u32[]{:S(2)}) async-start(x), \
async_execution_thread="host", calls=host
  ROOT d = f32[512,512]{1,0:T(8,128)} async-done(a)
}
"""
MOVE = 'custom-call(y), custom_call_target="MoveToHost"'


def warnings_of(text, **options):
    """Return what a run of a program warns of."""
    return tpusim.simulate(parse_module(SourceText("m.hlo", text)), "v5e", **options).summary.warnings


@pytest.mark.parametrize(
    "text",
    [TEXT.format(header="", of_sine=HOST, move="negate(y)"), THREAD],
    ids=["compute_on of JAX", "a thread of the host"],
)
@pytest.mark.parametrize("schedule", ["", "compiled"])
def test_work_on_the_host_is_said_to_be_timed_on_the_core(text, schedule):
    """Whoever compiles it, of what a front end says and of what the TPU compiler makes of it."""
    (warning,) = warnings_of(text, schedule=schedule)
    assert "work that the program has the host's processor do" in warning


def test_moves_that_partitioning_has_dropped_are_said():
    """By the mark that whoever partitions leaves."""
    header = ', frontend_attributes={tpusim_host_moves_lost="true"}'
    (warning,) = warnings_of(TEXT.format(header=header, of_sine="", move="negate(y)"))
    assert warning.startswith("partitioning has dropped")


def test_moves_that_a_schedule_leaves_to_calls_are_said_to_be_free():
    """Compiled anew it has copies, and warns of nothing."""
    text = TEXT.format(header=", is_scheduled=true", of_sine="", move=MOVE)
    (warning,) = warnings_of(text)
    assert warning.startswith("'z' says in which memory an array is to lie")
    assert not warnings_of(text, schedule="compiled")
