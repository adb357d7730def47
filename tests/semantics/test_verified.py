"""What is timed or computed has been verified: every command refuses what ``tpusim check`` refuses, in its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import output_of, refusal_of
from tests.semantics.hlo import parse
from tpusim.semantics.verify.module import Verified, problems, verify_module

if TYPE_CHECKING:
    from pathlib import Path

BAD_PRODUCT = """HloModule bad, is_scheduled=true

ENTRY main {
  x = f32[1024,256]{1,0:T(8,128)} parameter(0)
  w = f32[512,4096]{1,0:T(8,128)} parameter(1)
  ROOT r = f32[7,9]{1,0:T(8,128)} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
FITTING, RESULT = ("512,4096", "256,4096"), ("7,9", "1024,4096")
COMMANDS = [
    ("run",),
    ("run", "--json"),
    ("exec", "--random", "1"),
    ("lower",),
    ("explain", "--op", "r"),
    ("memory",),
    ("plot", "timeline", "-o", "x.png"),
    ("diff", "SELF"),
]


@pytest.fixture(name="bad")
def _bad(tmp_path: Path) -> str:
    """Return the path of a product whose contracted sizes differ."""
    path = tmp_path / "bad.v5e.hlo.txt"
    path.write_text(BAD_PRODUCT)
    return str(path)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_what_check_refuses(command: tuple[str, ...], bad: str, capsys) -> None:
    """With the first message of ``check``: nothing is timed, computed or drawn of a module that means nothing."""
    name, *options = (bad if word == "SELF" else word for word in command)
    words = (name, options.pop(0), bad) if name == "plot" else (name, bad)
    assert refusal_of(capsys, *words, *options) == refusal_of(capsys, "check", bad)


def test_a_lowered_program_is_checked_as_it_is_run(tmp_path: Path, capsys) -> None:
    """Reading it is what refuses it, for both."""
    text, path = tmp_path / "good.v5e.hlo.txt", tmp_path / "good.json"
    text.write_text(BAD_PRODUCT.replace(*FITTING).replace(*RESULT))
    output_of(capsys, "lower", str(text), "-o", str(path))
    output_of(capsys, "check", str(path))
    path.write_text(path.read_text()[:-9])
    assert refusal_of(capsys, "check", str(path)) == refusal_of(capsys, "run", str(path))


def test_only_the_verifier_makes_a_verified_module() -> None:
    """No stage can wrap a module by itself."""
    with pytest.raises(TypeError):
        Verified(parse(BAD_PRODUCT), object())


def test_a_verified_module_is_the_one_that_was_handed_in() -> None:
    """Not a copy, whose tables would have to be built again."""
    module = parse(BAD_PRODUCT.replace(*FITTING).replace(*RESULT))
    assert verify_module(module).module is module


@pytest.mark.parametrize("count", ["replica_count=0", "num_partitions=0", "num_partitions=2000000"])
def test_a_module_for_no_device_or_for_too_many_is_refused(count: str) -> None:
    """It would run on nothing at all, or fill the memory of the host."""
    (problem,) = problems(parse(BAD_PRODUCT.replace("is_scheduled=true", count).replace(*FITTING).replace(*RESULT)))
    assert "[module_c2]" in problem.message
