"""The tables that chips share: every figure says where it is from, and holds at the nodes that it states."""

from __future__ import annotations

import msgspec
import pytest

from tpusim.errors import ConfigError
from tpusim.hardware import figures
from tpusim.hardware.fields import CONFIDENCE, OPERAND_TYPES, energy_activities
from tpusim.hardware.figures import Figure, at_node, load_area_table, load_energy_table, load_price_table
from tpusim.hardware.load import chip_names, load_chip

TABLES = (load_energy_table, load_area_table, load_price_table)


def figures_in(value):
    """Return all figures in a table, however deep."""
    if isinstance(value, Figure):
        return [value]
    parts = value.values() if isinstance(value, dict) else ()
    if isinstance(value, msgspec.Struct):
        parts = msgspec.structs.asdict(value).values()
    return [figure for part in parts for figure in figures_in(part)]


@pytest.mark.parametrize("load", TABLES)
def test_every_figure_has_a_source_and_a_word_of_confidence(load):
    """What is estimated also says how."""
    found = figures_in(load())
    assert len(found) >= 7
    for figure in found:
        assert figure.confidence in CONFIDENCE, figure
        assert len(figure.source) > 10, figure
        assert figure.confidence not in ("estimated", "fitted") or len(figure.note.split()) >= 4, figure


def test_every_unit_and_memory_has_an_energy():
    """Nothing costs nothing in silence: multiply-accumulates of all types, all operations, all bytes, rows."""
    table = load_energy_table()
    rows = {f"matrix_{table.like.get(kind, kind)}" for kind in OPERAND_TYPES}
    others = {key.replace(".", "_") for key in energy_activities() if not key.startswith("matrix.")}
    assert rows | others == set(table.events)


@pytest.mark.parametrize("name", chip_names())
def test_every_chip_says_what_it_draws_while_idle(name):
    """No more than the least that was measured of it while it ran (TPU v3 123 W, v4 121 W; fleets: v5e 66, v6e 153)."""
    least = {"v3": 123, "v4": 121, "v4-megacore": 121, "v5e": 66, "v5p": 331, "v6e": 153}
    assert 0 < load_chip(name).power.idle_watts < least.get(name, 1000)


def test_a_factor_holds_at_its_nodes_and_goes_by_powers_between_and_beyond():
    """4 at 16, 1 at 4: a power of one; 1 at 4, 0.25 at 2: of two."""
    factors = {
        str(node): Figure(value=value, confidence="derived", source="x") for node, value in ((16, 4), (4, 1), (2, 0.25))
    }
    wanted = {16: 4, 4: 1, 2: 0.25, 8: 2, 32: 8, 3: 9 / 16, 1: 1 / 16}
    for node, value in wanted.items():
        assert at_node(factors, node) == pytest.approx(value), node


def test_a_table_with_a_slip_is_refused(monkeypatch):
    """By file, key and the words that are known."""
    raw = {"date": "x", "chips": {"v4": {"value": 1, "confidence": "sure", "source": "me"}}}
    monkeypatch.setattr(figures, "read_config", lambda name: raw)
    with pytest.raises(ConfigError, match=r"prices\.toml: confidence: expected one of published.*found 'sure'"):
        load_price_table.__wrapped__()
