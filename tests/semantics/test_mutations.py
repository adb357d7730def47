"""One thing changed (a size, a type, an operand, an attribute, a name, a line): our verdict, XLA's and that of a run.

``data/mutations.txt`` has instructions of the cases, one a line: of some ten thousand such changes, those by which most
constraints are broken, and for each opcode one that breaks none. Left out is what XLA's process does not survive, and
what its CPU lacks. Mutants of whole programs are made by ``mutants``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tpusim
from tests.semantics import infer_cases, verify_cases
from tests.semantics.hlo import one, parse
from tests.semantics.mutants import MUTATORS, mutants
from tpusim.errors import ProgramError, UnsupportedError
from tpusim.semantics.verify.module import problems, verify_module
from tpusim.semantics.verify.structure import check_structure
from tpusim.semantics.verify.view import CHECKS, View

MUTATIONS = (Path(__file__).parent.parent / "data" / "mutations.txt").read_text().splitlines()


@cache
def _cpu() -> Any:
    """Return the device for which XLA compiles; only these tests need it."""
    return pytest.importorskip("jax").devices("cpu")[0]


def xla_refuses(text: str) -> str:
    """Return why XLA's parser, StableHLO's or XLA's verifier refuse a module; an empty string if they do not."""
    _hlo, _client = (pytest.importorskip(f"jaxlib.{name}") for name in ("_hlo", "xla_client"))
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


def refusals(text: str, chip: str = "v5e") -> tuple[str, str]:
    """Return with what words ``check`` and ``run`` refuse a program, each an empty string if it does not."""
    try:
        module = parse(text)
    except ProgramError as error:
        # Both read first, in the same way.
        return str(error), str(error)
    checked = next((str(problem) for problem in problems(module)), "")
    try:
        # Whether it fits is not a question of its words.
        assert tpusim.simulate(module, chip, allow_overflow=True).time_us >= 0
    except ProgramError as error:
        return checked, str(error)
    except UnsupportedError:
        # Right, but nobody has partitioned it: no word of the verifier's.
        return checked, ""
    return checked, ""


def assert_one_verdict(mutator: str, numbers: range) -> None:
    """Require that check and run say the same of mutants, with a place, and that neither ends in a traceback."""
    for label, text, chip in mutants(mutator, numbers):
        checked, ran = refusals(text, chip)
        assert checked == ran, label
        assert not ran or ran.startswith("test.hlo:"), (label, ran)


@pytest.mark.parametrize("mutator", MUTATORS)
def test_check_refuses_a_mutant_if_and_only_if_run_does(mutator: str) -> None:
    """The first few of the two thousand below."""
    assert_one_verdict(mutator, range(8))


@pytest.mark.parametrize("mutator", MUTATORS)
def test_of_what_is_alike_the_first_tells_whether_all_is_right(mutator: str) -> None:
    """Against a look at each computation."""
    for label, text, _ in mutants(mutator, range(40), seed=1):
        try:
            module = parse(text)
        except ProgramError:
            continue
        view = View(module, module.is_scheduled)
        found = list(check_structure(view)) or [finding for check in CHECKS for finding in check(view)]
        assert len(problems(module)) == len(found), label


@pytest.mark.slow
@pytest.mark.parametrize("mutator", MUTATORS)
def test_check_refuses_any_of_two_thousand_mutants_if_and_only_if_run_does(mutator: str) -> None:
    """A hundred by each of the twenty mutators."""
    assert_one_verdict(mutator, range(100))


CASES = {
    "verified": [kept.replace(part, other) for kept, part, other in verify_cases.CASES.values()],
    "kept": [kept for kept, _, _ in verify_cases.CASES.values()],
    "inferred": [one(text) for pair in (infer_cases.INFERRED_BY_XLA | infer_cases.OURS).values() for text in pair],
    **{
        f"mutated {start}": [one(text) for text in MUTATIONS[start : start + 40]]
        for start in range(0, len(MUTATIONS), 40)
    },
}


@pytest.mark.parametrize("texts", CASES.values(), ids=CASES)
def test_check_refuses_a_case_if_and_only_if_run_does(texts: list[str]) -> None:
    """Every constraint kept and broken."""
    for text in texts:
        checked, ran = refusals(text)
        assert checked == ran, text
