"""Patterns of programs: what they match is glob's to say, and what variables are is theirs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.study.cases import kernel_module
from tpusim.errors import ConfigError
from tpusim.study.programs import _parts, _variables, find_programs


def found(folder, pattern: str, *names: str) -> list[tuple]:
    """Return the variables of the programs of these names that a pattern finds."""
    for name in names:
        (folder / name).write_text(kernel_module().text, encoding="utf-8")
    return [program.variables for program in find_programs(pattern, {}, folder)]


@pytest.mark.parametrize(
    ("pattern", "names", "values"),
    [
        ("{n}[!x]t.hlo", ["1yt.hlo", "2xt.hlo"], [1]),
        ("{n}[^x]t.hlo", ["1yt.hlo", "2^t.hlo"], [2]),
        ("{n}[]x]t.hlo", ["1yt.hlo", "2]t.hlo"], [2]),
        ("{n}[x]t.hlo", ["1yt.hlo", "2xt.hlo"], [2]),
        ("{n}?t.hlo", ["1yt.hlo", "2xt.hlo"], [1, 2]),
    ],
)
def test_letters_in_brackets_mean_what_glob_says(tmp_path, pattern, names, values):
    """Only ``!`` turns them round, and the first may be one that closes."""
    assert found(tmp_path, pattern, *names) == [(("n", value),) for value in values]


def test_many_stars_end(tmp_path):
    """Tried one in the other they would take years."""
    name = f"{'a' * 120}.v5e.hlo.txt"
    assert found(tmp_path, "*a" * 20 + "{n}.v5e.hlo.txt", name) == [(("n", "a"),)]
    with pytest.raises(ConfigError, match="does not match"):
        found(tmp_path, "*a" * 20 + "{n}_*.v5e.hlo.txt", f"{'a' * 100}._.v5e.hlo.txt")


TEXT = st.lists(st.sampled_from([*"ab._*?", "ab", "{n}", "{m}", "[ab]"]), max_size=6).map("".join)


@given(TEXT.filter(lambda text: text.count("{n}") < 2 and text.count("{m}") < 2), st.text("ab._", max_size=8))
def test_variables_are_as_long_as_can_be(pattern, name):
    """A regular expression, which tries everything, is the naive twin."""
    words = {"*": ".*", "?": ".", ".": r"\."}
    parts = re.split(r"(\{.\}|\[ab\])", pattern)
    ends = [before[-1:] == after[:1] == "." for before, after in zip(parts[::2], parts[2::2], strict=False)]
    twin = ""
    for number, part in enumerate(parts):
        free = "_" if number % 2 and not ends[number // 2] else ""
        is_variable = part[:1] == "{"
        twin += f"(?P<{part[1:-1]}>[^/.{free}]+)" if is_variable else re.sub(r"[*?.]", lambda one: words[one[0]], part)
    match = re.fullmatch(twin, name)
    assert _variables(_parts(pattern), name) == (match and match.groupdict())


@pytest.mark.parametrize(("pattern", "said"), [("{1n}.hlo", "a name in braces"), ("{n}{n}.hlo", "each variable once")])
def test_variables_are_names_of_one_part(tmp_path, pattern, said):
    """Else no column would be theirs."""
    with pytest.raises(ConfigError, match=said):
        found(tmp_path, pattern)
