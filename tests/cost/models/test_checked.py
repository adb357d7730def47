"""What a user's own model answers is checked: what cannot be ends in a message that names the class, and no time."""

from __future__ import annotations

from math import inf, nan

import pytest

from tpusim.cost.models import registry as registry_of_all
from tpusim.cost.models.choice import REGISTRIES
from tpusim.cost.models.protocols import ArrayWork, Pace, Served
from tpusim.errors import ConfigError
from tpusim.hardware.fabric import Graph
from tpusim.hardware.load import load_chip, override_chip
from tpusim.hardware.torus import Torus
from tpusim.pipeline.stages import simulate
from tpusim.program.steps import Kernel
from tpusim.program.work import Matmul, Stream, Work

CHIP = load_chip("v5e")
LINE = Torus((2,), (False,))
STREAMS = [Stream("x", "hbm", 1024.0), Stream("y", "hbm", 512.0)]
GIVEN = {
    "work": (None, None, CHIP),
    "cycles": (None, CHIP),
    "serve": (STREAMS, CHIP),
    "pace": (None, {}, 0, CHIP),
    "kernel": (None, None, CHIP),
    "links": (LINE, CHIP),
    "rounds": ("all-gather", 2),
    "joules": (CHIP,),
    "idle_watts": (CHIP,),
}
"""What each method is given: these models look at none of it."""


class Answers:
    """A model of any unit, whose answers are those of the test."""

    answer: object = None

    def _say(self, *_):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    work = cycles = serve = pace = kernel = links = rounds = joules = idle_watts = _say


def answer_of(monkeypatch, key: str, method: str, answer: object):
    """Return what a model under a key of the chip gives, whose method answers so."""
    monkeypatch.setitem(registry_of_all._ALLOWED, "tests", None)
    monkeypatch.setattr(Answers, "answer", answer)
    registry = next(one for one in REGISTRIES if one.key == key)
    model = registry.chosen(override_chip(CHIP, {key: f"{__name__}:Answers"}))
    return getattr(model, method)(*GIVEN[method])


RIGHT = [
    ("mxu.model", "work", ArrayWork(Matmul(1.0, 2.0), 0.0, 1.0)),
    ("mxu.model", "cycles", 12),
    ("hbm.model", "serve", Served([1024.0, 0])),
    ("hbm.model", "serve", Served((1.5, 2.5), 0.5, 3)),
    ("dma.model", "pace", Pace(0, 12)),
    ("vpu.model", "work", Work(ops={"vector": 2.0})),
    ("vpu.model", "kernel", Kernel(name="k", opcode="fusion")),
    ("ici.model", "links", Torus((2,), (True,))),
    ("ici.model", "links", Graph(2, 3, ((0, 2), (2, 1)), (1.0, 0.5))),
    ("ici.algorithm", "rounds", None),
    ("ici.algorithm", "rounds", [([(0, 1, 0.5), (1, 0, 0.5)], 1)]),
    ("power.model", "joules", {"matrix.bf16": 1e-12}),
    ("power.model", "idle_watts", 50.0),
]
WRONG = [
    *((key, method, KeyError("x")) for key, method, _ in RIGHT),
    *((key, method, ...) for key, method, _ in RIGHT),
    ("mxu.model", "work", ArrayWork(Matmul(nan, 2.0), 0.0, 1.0)),
    ("mxu.model", "work", ArrayWork(None, 0.0, 1.0)),
    ("mxu.model", "cycles", -1.0),
    ("mxu.model", "cycles", inf),
    ("hbm.model", "serve", Served([nan, 1.0])),
    ("hbm.model", "serve", Served([1024.0, -512.0])),
    ("hbm.model", "serve", Served([1024.0])),
    ("hbm.model", "serve", Served([1024.0, "512"])),
    ("hbm.model", "serve", Served(5)),
    ("hbm.model", "serve", Served([1.0, 1.0], activations=-1.0)),
    ("dma.model", "pace", Pace(1.5, 0)),
    ("dma.model", "pace", Pace(0, -1)),
    ("vpu.model", "work", Work(ops={"vector": nan})),
    ("vpu.model", "work", Work(ops={"nothing": 1.0})),
    ("vpu.model", "kernel", Kernel(name="k", opcode="fusion", work=Work(ops={"vector": -1.0}))),
    ("ici.model", "links", Torus((3,), (True,))),
    ("ici.model", "links", Graph(3, 3, (), ())),
    ("ici.model", "links", Graph(2, 2, ((0, 1),), ())),
    ("ici.model", "links", Graph(2, 2, ((0, 1),), (0.0,))),
    ("ici.model", "links", Graph(2, 2, ((0, 2),), (1.0,))),
    ("ici.algorithm", "rounds", [([(0, 2, 0.5)], 1)]),
    ("ici.algorithm", "rounds", [([(0, 1, nan)], 1)]),
    ("ici.algorithm", "rounds", [([(0, 1, 0.5)], 0)]),
    ("ici.algorithm", "rounds", [([], 1)]),
    ("power.model", "joules", {"matrix.bf16": -1e-12}),
    ("power.model", "idle_watts", nan),
]


@pytest.mark.parametrize(("key", "method", "answer"), RIGHT, ids=str)
def test_what_can_be_is_taken_as_it_is(monkeypatch, key, method, answer):
    """Whole numbers and tuples as well."""
    assert answer_of(monkeypatch, key, method, answer) is answer


@pytest.mark.parametrize(("key", "method", "answer"), WRONG, ids=str)
def test_what_cannot_be_is_refused(monkeypatch, key, method, answer):
    """The message names the key, the class and its method."""
    with pytest.raises(ConfigError, match=rf"{key}: '{__name__}:Answers': {method}(:| ended in KeyError)"):
        answer_of(monkeypatch, key, method, answer)


def test_an_error_of_tpusim_stays_what_it_is(monkeypatch):
    """A fabric that a slice cannot have says so itself."""
    with pytest.raises(ConfigError, match=r"^no such slice$"):
        answer_of(monkeypatch, "ici.model", "links", ConfigError("no such slice"))


def test_a_run_with_a_memory_that_answers_no_number_ends(monkeypatch):
    """It went on for ever, or ended in a traceback."""
    monkeypatch.setitem(registry_of_all._ALLOWED, "tests", None)
    monkeypatch.setattr(Answers, "answer", Served([nan]))
    with pytest.raises(ConfigError, match=r"hbm\.model: .*:Answers': serve: expected"):
        simulate("traces/mlp_b1024.v5e.hlo.txt.gz", overrides={"hbm.model": f"{__name__}:Answers"})
