"""Two runs side by side, from figures written by hand: who is matched with whom, and in which order they are told."""

from __future__ import annotations

import pytest

from tpusim.analysis.compare import OpFigures, RunFigures, compare, is_result, load_result
from tpusim.errors import ProgramError


def op(name: str, time_us: float, **fields) -> OpFigures:
    """An op with a time."""
    return OpFigures(name=name, time_us=time_us, **({"opcode": "fusion", "category": "loop fusion"} | fields))


def run(*ops: OpFigures) -> RunFigures:
    """A run of ops, as long as all of them."""
    return RunFigures(program="p", chip="v5e", time_us=sum(o.time_us for o in ops), ops=ops)


def test_the_largest_change_comes_first():
    """Longer or shorter, by how much it is; what stays the same at the end."""
    found = compare(run(op("a", 5), op("b", 9), op("c", 1)), run(op("a", 6), op("b", 2), op("c", 1)))
    assert [(c.name, c.change_us) for c in found.ops] == [("b", -7), ("a", 1), ("c", 0)]
    assert found.ratio == 9 / 15


def test_what_only_one_run_has_is_told():
    """Gone and new ops change by all of their time."""
    found = compare(run(op("old", 3)), run(op("new", 4)))
    assert [(c.name, c.change_us) for c in found.ops] == [("new", 4), ("old", -3)]


def test_renumbered_ops_are_matched_by_where_they_came_from():
    """Another compilation numbers fusions anew: the framework's name tells which is which."""
    found = compare(run(op("fusion.1", 3, op_name="dot")), run(op("fusion.7", 4, op_name="dot")))
    (change,) = found.ops
    assert (change.before.name, change.after.name, change.change_us) == ("fusion.1", "fusion.7", 1)


def test_one_name_for_different_ops_is_no_match():
    """The same number in another program is another op."""
    found = compare(run(op("fusion.1", 3, op_name="dot")), run(op("fusion.1", 4, op_name="add")))
    assert sorted(c.change_us for c in found.ops) == [-3, 4]


def test_categories_are_sums_of_their_ops():
    """Every op counts in its own category."""
    before = run(op("a", 1), op("b", 2), op("c", 4, category="copy"))
    found = compare(before, run(op("a", 2), op("b", 3), op("c", 1, category="copy")))
    assert {c.name: c.change_us for c in found.categories} == {"copy": -3, "loop fusion": 2}


def test_the_same_run_changes_nothing():
    """Every op is matched with itself."""
    both = run(op("a", 1), op("b", 2))
    assert {c.change_us for c in compare(both, both).ops} == {0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "tpusim-result-1"}', "missing required field"),
        ('{"format": "tpusim-result-9", "program": "p", "chip": "c", "time_us": 1}', "save it again"),
    ],
)
def test_slips_in_a_saved_result_are_refused(tmp_path, text, message):
    """By what is missing, or by its version."""
    path = tmp_path / "r.json"
    path.write_text(text)
    assert is_result(path)
    with pytest.raises(ProgramError, match=message):
        load_result(path)


@pytest.mark.parametrize("text", ['{"format": "tpusim-program-2"}', "[]", "no json", "{}"])
def test_other_files_are_no_results(tmp_path, text):
    """A lowered program is JSON too."""
    path = tmp_path / "r.json"
    path.write_text(text)
    assert not is_result(path)


@pytest.mark.parametrize(
    ("value", "words"), [("[" * 5000, "values that are too deep in each other"), ("9" * 5000, "digits")]
)
def test_a_result_that_no_reader_holds_is_refused_in_plain_words(tmp_path, value, words):
    """And not in those of a reader's stack, or with a setting of Python's to change."""
    path = tmp_path / "deep.json"
    path.write_text(
        '{"format": "tpusim-result-1", "program": "p", "chip": "v5e", "time_us": 1, "ops": [], "other": ' + value + "}"
    )
    with pytest.raises(ProgramError, match=words) as caught:
        load_result(path)
    assert "sys." not in str(caught.value)
