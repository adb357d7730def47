"""A module shows itself as HLO text: printed, saved and named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import tpusim
from tpusim.errors import UnsupportedError
from tpusim.ir import module as ir_module
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


@pytest.fixture
def module() -> tpusim.Module:
    """A module of three instructions."""
    builder = tpusim.Builder("layer")
    return builder.build(builder.tanh(builder.neg(builder.parameter(0, "f32[8]"))))


def test_the_text_reads_back(module: tpusim.Module, tmp_path: Path) -> None:
    """As the module that it was printed from."""
    module.save(tmp_path / "m.hlo")
    assert (tmp_path / "m.hlo").read_text() == module.text
    assert tpusim.load(tmp_path / "m.hlo") == module


def test_a_saved_module_is_packed_by_its_name(module: tpusim.Module, tmp_path: Path) -> None:
    """The same bytes every time: no time of writing in them."""
    module.save(tmp_path / "a.hlo.gz")
    module.save(tmp_path / "b.hlo.gz")
    assert (tmp_path / "a.hlo.gz").read_bytes() == (tmp_path / "b.hlo.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.hlo.gz").read_bytes()).decode() == module.text


def test_a_module_is_named_in_a_line(module: tpusim.Module) -> None:
    """Its fields would be megabytes."""
    assert repr(module) == "<Module layer: 3 instructions, 1 computations>"


def test_without_the_room_of_text_nothing_is_printed(module: tpusim.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to import."""
    monkeypatch.setattr(ir_module, "_PRINTERS", [])
    with pytest.raises(UnsupportedError, match=r"layer: .*import tpusim\.text"):
        _ = module.text


USED_AGAIN = """\
HloModule m, is_scheduled=true

inner {
  a = f32[] parameter(0)
  ROOT b = f32[] negate(a), control-predecessors={a}
}

ENTRY e {
  b.inner = f32[] parameter(0)
  a = f32[] negate(b.inner)
  ROOT b = f32[] call(a), to_apply=inner
}
"""


def test_each_instruction_gets_a_name_of_its_own() -> None:
    """Those of the entry stay, and no name that is made is one that was there."""
    module = ir_module.with_own_names(parse_module(SourceText("m.hlo", USED_AGAIN)))
    assert [i.name for i in module.entry] == ["b.inner", "a", "b"]
    assert [i.name for i in module["inner"]] == ["a.inner", "b.inner.inner"]
    assert module["inner"].root.operands == module["inner"].root.attributes["control-predecessors"] == ("a.inner",)
    assert parse_module(SourceText("m.hlo", module.text)) == module
    assert ir_module.with_own_names(module) is module
