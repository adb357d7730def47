"""Patterns of programs: what they match is glob's to say, and what variables are is theirs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.study.cases import kernel_module, tanh_of
from tpusim.errors import ConfigError
from tpusim.study.programs import _cut, _parts, find_programs


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
    parts = _parts(pattern)
    texts = _cut(parts, name)
    found = (
        None if texts is None else {one.variable: text for one, text in zip(parts, texts, strict=True) if one.variable}
    )
    assert found == (match and match.groupdict())


@pytest.mark.parametrize(("pattern", "said"), [("{1n}.hlo", "a name in braces"), ("{n}{n}.hlo", "each variable once")])
def test_variables_are_names_of_one_part(tmp_path, pattern, said):
    """Else no column would be theirs."""
    with pytest.raises(ConfigError, match=said):
        found(tmp_path, pattern)


def names(folder, sources, *files: str) -> list[str]:
    """Return what the programs of these files, in folders of their own, are called."""
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(kernel_module(path.parent.name).text, encoding="utf-8")
    return [program.name for program in find_programs(sources, {}, folder)]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["A/s.hlo", "B/s.hlo", "A/t.hlo"], ["A/s.hlo", "B/s.hlo", "t.hlo"]),
        (["{d}/s.hlo"], ["A/s.hlo", "B/s.hlo"]),
        (["A/s.hlo", "A/B/s.hlo", "C/B/s.hlo"], ["A/s.hlo", "A/B/s.hlo", "C/B/s.hlo"]),
        (["A/s.hlo", "./A/../A/s.hlo", "B/s.hlo"], ["A/s.hlo", "B/s.hlo"]),
        ({"net": "*/s.hlo"}, ["net (A/s.hlo)", "net (B/s.hlo)"]),
        ({"net": "{d}/s.hlo"}, ["net", "net"]),
        ({"net": "?/{n}.hlo"}, ["net (A/{n}.hlo)", "net (A/{n}.hlo)", "net (B/{n}.hlo)"]),
        ({"one": "A/s.hlo", "two": "B/s.hlo"}, ["one", "two"]),
    ],
)
def test_programs_of_one_name_are_told_by_the_end_of_their_paths(tmp_path, sources, expected):
    """As much of it as no other one has; what a caller names is called so, where variables tell its variants."""
    assert names(tmp_path, sources, "A/s.hlo", "A/t.hlo", "B/s.hlo", "A/B/s.hlo", "C/B/s.hlo") == expected


def test_modules_of_one_name_are_counted():
    """Nothing else tells them; the same one twice is one program."""
    one, other = kernel_module(), kernel_module(partitions=2)
    assert [program.name for program in find_programs([one, other, one], {})] == ["m", "m #2"]


def test_functions_of_one_name_are_families_of_their_own():
    """Two of them without a name are called alike, and make programs for the same values."""
    made = find_programs([lambda batch: tanh_of(batch), lambda batch: tanh_of(batch + 2)], {"batch": [1, 2]})
    assert [program.name for program in made] == ["<lambda>", "<lambda>", "<lambda> #2", "<lambda> #2"]
    assert len({program.family for program in made}) == 2


def test_a_family_is_a_path_without_its_variables(tmp_path):
    """A star may be the name of several models, whose sizes are no variants of each other."""
    found(tmp_path, "*.hlo", "bert_b8.hlo", "bert_b16.hlo", "gpt_b8.hlo")
    families = [program.family for program in find_programs("*_b{batch}.hlo", {}, tmp_path)]
    assert families == [str(tmp_path / f"{name}_b{{batch}}.hlo") for name in ("bert", "bert", "gpt")]
