"""Loading a chip: names, the user's own files, overrides, and what is refused with which words."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tpusim.errors import ConfigError
from tpusim.hardware import load
from tpusim.hardware.fields import Fact
from tpusim.hardware.load import chip_facts, chip_names, load_chip, parse_override, resolve_chip_name

ALIASES = [
    ("v5e", "v5e"),
    ("V5E", "v5e"),
    ("TPU v5e", "v5e"),
    ("TPU v5 lite", "v5e"),
    ("v5litepod", "v5e"),
    ("TPU v6 lite", "v6e"),
    ("trillium", "v6e"),
    ("TPU7x", "v7x"),
    ("tpu7x", "v7x"),
    ("Ironwood", "v7x"),
    ("TPU v5p", "v5p"),
    ("TPU v5", "v5p"),
    ("TPU v4", "v4"),
    ("v4_megacore", "v4-megacore"),
    ("tpu_v3", "v3"),
]

# Key, value, and words of the error.
REFUSED: list[tuple[str, Any, str]] = [
    ("hbm.bandwidth_gbps", 819, "did you mean 'hbm.bandwidth_bytes_per_second'"),
    ("bandwidth", 819e9, "hbm.bandwidth_bytes_per_second"),
    ("hbm.size", 16e9, "hbm.capacity_bytes"),
    ("clock", 2e9, "did you mean 'clock_hz'"),
    ("mxu", 4, "mxu.count"),
    ("mxu.rate_by_type.bf61", 1.0, "did you mean 'mxu.rate_by_type.bf16'"),
    ("vector_ops.ops.tanhh.vector", 5, "did you mean 'tanh'"),
    ("vector_ops.moves.foo.xlu", 5, "expected one of vector_ops.moves, found 'foo'"),
    ("vector_ops.pack.bf15.vector", 5, "expected an element type, found 'bf15'"),
    ("hbm.bandwidth_bytes_per_second", 819, "expected bytes per second"),
    ("hbm.bandwidth_bytes_per_second", -819e9, "expected bytes per second"),
    ("hbm.bandwidth_bytes_per_second", 0, "expected bytes per second"),
    ("hbm.capacity_bytes", 16, "expected bytes"),
    ("hbm.capacity_bytes", 16e9 + 0.5, "expected bytes"),
    ("vmem.capacity_bytes", 128, "expected bytes"),
    ("clock_hz", 940, "expected hertz"),
    ("clock_hz", 0, "expected hertz"),
    ("clock_hz", float("nan"), "found nan"),
    ("clock_hz", float("inf"), "found inf"),
    ("clock_hz", "fast", "found 'fast'"),
    ("clock_hz", True, "found True"),
    ("fixed.kernel_seconds", 0.86, "expected seconds"),
    ("fixed.kernel_seconds", -1e-6, "expected seconds"),
    ("hbm.efficiency", 0, "a share above 0"),
    ("hbm.efficiency", 1.01, "a share above 0"),
    ("mxu.efficiency", 70, "a share above 0"),
    ("mxu.count", 2.5, "a whole number"),
    ("mxu.count", 2.5, "a whole number"),
    ("mxu.count", 0, "a whole number"),
    ("mxu.count", True, "a whole number"),
    ("vpu.native_bf16", 1, "true or false"),
    ("ici.wrap", "allways", "'length16' or 'cube4' or 'always'"),
    ("mxu.rate_by_type.s8", 0, "a multiple of the bf16 rate"),
]


def write(folder: Path, text: str, name: str = "mine.toml") -> str:
    """Write a chip file and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("text", "name"), ALIASES)
def test_names_are_found_in_any_spelling(text: str, name: str) -> None:
    """Upper case, spaces, dashes and the word TPU make no difference; JAX's device kinds are aliases."""
    assert resolve_chip_name(text) == name


def test_no_two_chips_share_a_spelling() -> None:
    """An alias that two files claim would silently mean the later one."""
    words = [word for name in chip_names() for word in (name, *load_chip(name).aliases)]
    spellings = {(load._spelling(word), resolve_chip_name(word)) for word in words}
    assert len(spellings) == len({spelling for spelling, _ in spellings})


@pytest.mark.parametrize(("text", "nearest"), [("v5ee", "'v5e'"), ("ironwod", "'ironwood'"), ("trilium", "'trillium'")])
def test_unknown_chip_names_the_nearest(text: str, nearest: str) -> None:
    """The error quotes what was asked for, the nearest name and all names."""
    with pytest.raises(ConfigError, match=f"unknown chip '{text}'.*did you mean {nearest}.*v7x"):
        load_chip(text)


@pytest.mark.parametrize("text", ["", "TPU", "---"])
def test_empty_names_are_unknown(text: str) -> None:
    """Nothing is left of them after spelling; they must not match anything."""
    with pytest.raises(ConfigError, match="unknown chip"):
        load_chip(text)


def test_an_override_changes_its_value_only() -> None:
    """The rest of the chip stays, and the shipped chip itself is as before."""
    before = load_chip("v5e")
    after = load_chip("v5e", {"hbm.bandwidth_bytes_per_second": 1.2e12})
    assert after.hbm.bandwidth_bytes_per_second == 1.2e12
    assert after.hbm.efficiency == before.hbm.efficiency
    assert after.mxu == before.mxu
    assert load_chip("v5e") == before


def test_who_writes_into_a_chip_changes_that_one_alone() -> None:
    """And it is no longer as it is shipped: its tables are plain ones."""
    mine = load_chip("v5e")
    assert load.is_as_shipped(mine)
    mine.mxu.rate_by_type["bf16"] = 99.0
    assert load.changed_figures(mine) == {"mxu.rate_by_type.bf16": 99.0}
    assert not load.is_as_shipped(mine)
    assert load_chip("v5e").mxu.rate_by_type["bf16"] == 1.0
    assert load.is_as_shipped(load_chip("v5e"))


def test_an_override_can_add_an_operand_type() -> None:
    """What if v7x had integer matrix units after all."""
    assert load_chip("v7x", {"mxu.rate_by_type.s8": 2}).mxu.rate_by_type["s8"] == 2.0


def test_an_override_shows_among_the_facts() -> None:
    """Its confidence is the user's and its note keeps the value that it replaces."""
    fact = next(fact for fact in chip_facts("v5e", {"clock_hz": 2e9}) if fact.key == "clock_hz")
    assert (fact.value, fact.unit, fact.confidence) == (2e9, "Hz", "user")
    assert "1.5e+09" in fact.note


def test_sizes_may_be_written_with_an_exponent() -> None:
    """32e9 is a float to TOML; a count of bytes it is all the same, and becomes an int."""
    capacity = load_chip("v5e", {"hbm.capacity_bytes": 32e9}).hbm.capacity_bytes
    assert capacity == 32_000_000_000
    assert isinstance(capacity, int)


@pytest.mark.parametrize(("key", "value", "words"), REFUSED)
def test_wrong_values_and_keys_are_refused_as_overrides(key: str, value: Any, words: str) -> None:
    """The error names the key and says what was expected."""
    with pytest.raises(ConfigError) as caught:
        load_chip("v5e", {key: value})
    assert key in str(caught.value)
    assert words in str(caught.value)


def test_a_wrong_value_in_a_file_names_the_file(tmp_path: Path) -> None:
    """File, key, what was expected, what was found."""
    path = write(tmp_path, 'base = "v5e"\n[hbm]\nbandwidth_bytes_per_second = 819\n')
    with pytest.raises(ConfigError) as caught:
        load_chip(path)
    assert str(caught.value).startswith(f"{path}: hbm.bandwidth_bytes_per_second: expected bytes per second")
    assert str(caught.value).endswith("found 819")


def test_a_wrong_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    """File, key and the nearest known key."""
    path = write(tmp_path, 'base = "v5e"\n[vmem]\ncapasity_bytes = 1e6\n')
    with pytest.raises(ConfigError, match=r"mine\.toml.*'vmem.capasity_bytes'.*'vmem.capacity_bytes'"):
        load_chip(path)


def test_an_operation_that_there_is_not_is_refused_in_a_file(tmp_path: Path) -> None:
    """Nothing would ever ask for what it costs."""
    path = write(tmp_path, 'base = "v5e"\n[vector_ops.ops.tanhh]\nvector = 5\n')
    with pytest.raises(ConfigError, match=r"mine\.toml.*found 'tanhh' \(did you mean 'tanh'\?\)"):
        load_chip(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("hbm.efficiency=0.9", 0.9),
        ("mxu.count = 8", 8),
        ("clock_hz=2.2e9", 2.2e9),
        ("vpu.native_bf16=true", True),
        ("ici.wrap=always", "always"),
        ('ici.wrap="always"', "always"),
        ("hbm.capacity_bytes=17_179_869_184", 17_179_869_184),
        ("hbm.capacity_bytes=16Gi", "16Gi"),
        ("clock_hz=x1.5", "x1.5"),
        ("pod.host=2x2x1", "2x2x1"),
    ],
)
def test_overrides_are_parsed_as_toml_scalars(text: str, value: object) -> None:
    """A bare word is a text, since shells take the quotes away; prefixes and factors are read with their key."""
    assert parse_override(text) == (text.partition("=")[0].strip(), value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "=1", "x=", "x=[1]", "x={a=1}", "x=1\ny=2", "x=1979-05-27", "x=1 2", "x=1GHZ"),
        *("x=\N{ARABIC-INDIC DIGIT SIX}4", "x=128_0_", "x=1_.5e9"),
    ],
)
def test_other_overrides_are_refused(text: str) -> None:
    """The error begins with the word override and quotes what was given."""
    with pytest.raises(ConfigError, match=r"^override: ") as caught:
        parse_override(text)
    assert repr(text.partition("=")[2]) in str(caught.value) or repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "wrong", "right", "words"),
    [
        ("clock_hz", "1.6GB/s", "1.6GHz", "clock_hz: expected hertz"),
        ("clock_hz", "x1.5Hz", "x1.5", "clock_hz: expected hertz"),
        ("hbm.capacity_bytes", "16GHz", "16GB", "hbm.capacity_bytes: expected bytes"),
        ("mxu.count", "4s", "4", "mxu.count: expected a whole number"),
        ("units.xlu.fill", "-1", "1", "units.xlu.fill: expected cycles, from 0"),
    ],
)
def test_a_figure_has_the_unit_of_its_key_or_none(key: str, wrong: str, right: str, words: str) -> None:
    """Bytes are no hertz, whatever number they are."""
    with pytest.raises(ConfigError, match=words):
        load_chip("v5e", dict([parse_override(f"{key}={wrong}")]))
    assert load_chip("v5e", dict([parse_override(f"{key}={right}")]))


def test_a_setting_of_a_model_may_have_a_unit() -> None:
    """What it is counted in, only the model knows."""
    settings = dict(map(parse_override, ("hbm.settings.activate_seconds=14ns", "hbm.settings.row_bytes=1KiB")))
    assert load_chip("v5e", settings).hbm.settings == {"activate_seconds": pytest.approx(14e-9), "row_bytes": 1024}


def test_chips_that_build_on_each_other_end_at_a_bound(tmp_path: Path) -> None:
    """Not at the depth of Python's stack."""
    for number in range(400):
        (tmp_path / f"c{number}.toml").write_text(f'base = "./c{number + 1}.toml"\n')
    (tmp_path / "c400.toml").write_text('base = "v5e"\n')
    assert load_chip(tmp_path / "c369.toml").clock_hz == load_chip("v5e").clock_hz
    for number in (0, 368):
        with pytest.raises(ConfigError, match="at most 32 chips that each build on the next"):
            load_chip(tmp_path / f"c{number}.toml")


def test_a_file_inherits_what_it_does_not_state(tmp_path: Path) -> None:
    """Only the clock differs from the base; the name is the file's and the aliases are not inherited."""
    path = write(tmp_path, 'base = "TPU v5 lite"\nclock_hz = 2e9\n')
    mine, base = load_chip(path), load_chip("v5e")
    assert (mine.name, mine.aliases, mine.clock_hz) == ("mine", (), 2e9)
    assert (mine.mxu, mine.vpu, mine.hbm, mine.ici) == (base.mxu, base.vpu, base.hbm, base.ici)


def test_a_file_can_build_on_another_file(tmp_path: Path) -> None:
    """The path of the base counts from the file that names it."""
    write(tmp_path, 'base = "v6e"\n[mxu]\ncount = 4\n', "first.toml")
    path = write(tmp_path, 'base = "first.toml"\n[vmem]\ncapacity_bytes = 268_435_456\n')
    chip = load_chip(path)
    assert (chip.mxu.count, chip.vmem.capacity_bytes, chip.year) == (4, 2**28, 2024)


def test_a_file_may_give_sources(tmp_path: Path) -> None:
    """They are kept; a bare number's source is the file itself."""
    measured = '{ value = 0.8, confidence = "measured", source = "my run" }'
    path = write(tmp_path, f'base = "v5e"\nclock_hz = 2e9\n[hbm]\nefficiency = {measured}\n')
    facts = {fact.key: fact for fact in chip_facts(path)}
    assert facts["hbm.efficiency"] == Fact("hbm.efficiency", 0.8, "", "measured", "my run", "")
    assert (facts["clock_hz"].confidence, facts["clock_hz"].source) == ("user", path)
    assert facts["mxu.count"].confidence == "published"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{ value = 2e9, confidence = "sure" }', "expected one of published"),
        ('{ value = 2e9, confidence = "publised" }', "did you mean 'published'"),
        ('{ value = 2e9, confidence = "fitted", source = "my run" }', "expected a note"),
        ('{ value = 2e9, note = "" }', "note: expected a text"),
        ('{ value = 2e9, sourse = "x" }', "did you mean 'source'"),
        ("{ value = 940 }", "expected hertz"),
    ],
)
def test_a_wrong_statement_of_source_is_refused(tmp_path: Path, line: str, words: str) -> None:
    """The error names file and key."""
    path = write(tmp_path, f'base = "v5e"\nclock_hz = {line}\n')
    with pytest.raises(ConfigError) as caught:
        load_chip(path)
    assert str(caught.value).startswith(f"{path}: clock_hz: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("line", ["clock_hz = 1.5e9", "clock_hz = { value = 1.5e9 }"])
def test_a_shipped_number_without_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """In the folder of the shipped files a bare number is an error, unlike in a user's file."""
    monkeypatch.setattr(load, "_config_folder", lambda: tmp_path)
    path = write(tmp_path, f"{line}\n")
    with pytest.raises(ConfigError, match=r"source|confidence"):
        load_chip(path)


def test_a_file_with_gaps_lists_them(tmp_path: Path) -> None:
    """Without a base everything has to be stated; the error says how much is missing and offers the base."""
    path = write(tmp_path, 'name = "new"\nclock_hz = 2e9\n')
    with pytest.raises(ConfigError, match=r"missing: description, year, .*name another chip as base"):
        load_chip(path)


def test_cmem_without_bandwidth_is_refused() -> None:
    """A memory that nothing can be read from would never finish a copy."""
    with pytest.raises(ConfigError, match="cmem: expected bandwidths above 0"):
        load_chip("v5e", {"cmem.capacity_bytes": 2**27})


def test_a_circle_of_bases_is_refused(tmp_path: Path) -> None:
    """Two files that build on each other have no first one."""
    path = write(tmp_path, 'base = "other.toml"\n')
    write(tmp_path, 'base = "mine.toml"\n', "other.toml")
    with pytest.raises(ConfigError, match="circle"):
        load_chip(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [("clock_hz = = 2", "expected TOML"), ('base = "v5z"', "base: unknown chip 'v5z'"), ("base = 5", "found 5")],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    """Text that is no TOML, a base that does not exist, a base that is no name."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_chip(path)
    assert str(caught.value).startswith(path)
    assert words in str(caught.value)


def test_a_missing_file_is_refused() -> None:
    """With the path and the reason of the operating system."""
    with pytest.raises(ConfigError, match=r"nowhere/chip\.toml: cannot read .*No such file"):
        load_chip("nowhere/chip.toml")


def test_no_shipped_files_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken install names the folders that were searched."""
    monkeypatch.setattr(load, "_FOLDERS", (tmp_path / "a", tmp_path / "b"))
    with pytest.raises(ConfigError, match=r"no chip files: neither .*a nor .*b"):
        load._config_folder.__wrapped__()


@pytest.mark.parametrize("name", chip_names())
def test_loading_a_chip_is_quick(name: str) -> None:
    """From the file in under three times what reading its TOML takes (3 ms in all on a quiet core), at the best of
    five, taken in turn so that both meet the same machine; less than the reading from then on.
    """
    path = load._config_folder() / f"{name}.toml"
    loads, reads = zip(*((_seconds_to_load(path), _seconds_to_read(path)) for _ in range(5)), strict=True)
    assert min(loads) < 3 * min(reads)
    assert min(_seconds_to_load(name) for _ in range(5)) < min(reads)


def _seconds_to_read(path: Path) -> float:
    """Return how long the standard library takes for the same text, in CPU time."""
    begin = time.process_time()
    base = tomllib.loads(path.read_text(encoding="utf-8")).get("base")
    if base:
        tomllib.loads(path.with_stem(base).read_text(encoding="utf-8"))
    return time.process_time() - begin


def _seconds_to_load(name_or_path: str | Path) -> float:
    """Return how long loading a chip takes, in CPU time: what else the machine does at the time is not meant."""
    begin = time.process_time()
    load_chip(name_or_path)
    return time.process_time() - begin


def test_loading_a_chip_imports_nothing_heavy() -> None:
    """The command line starts with this module."""
    script = (
        "import sys; import tpusim.hardware.load; tpusim.hardware.load.load_chip('v5e'); "
        "print([name for name in ('numpy', 'numba', 'rich', 'simpy', 'matplotlib') if name in sys.modules])"
    )
    root = Path(load.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('clock_hz = { same_as = "v9" }', "unknown chip 'v9'"),
        ('clock_hz = { same_as = "v4", value = 1e9 }', "unknown key 'value'"),
        ('mxu.rate_by_type.f8e3m4 = { same_as = "v4" }', "found v4, which does not"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(tmp_path: Path, line: str, words: str) -> None:
    """Not a traceback."""
    with pytest.raises(ConfigError, match=words):
        load_chip(write(tmp_path, f'base = "v5e"\n{line}\n'))


def test_references_in_a_circle_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two chips says that it is as the other."""
    first, second = (Fact("clock_hz", load._SameAs(name), "Hz", "", "", "") for name in ("v5e", "v4"))
    monkeypatch.setattr(load, "_shipped_statement", lambda name, _: {"v4": first, "v5e": second}[name])
    with pytest.raises(ConfigError, match=r"v4: clock_hz: same_as: .* found a circle: v4 > v5e > v4"):
        load._followed(first, ("v4",))


@pytest.mark.parametrize("name", chip_names())
def test_one_value_is_that_of_the_whole_file(name: str) -> None:
    """Only the tables in which it stands are read: the chip's own, its base's, those of chips that they refer to."""
    values = {fact.key: fact.value for fact in chip_facts(name)}
    assert {key: load.shipped_value(name, key) for key in values} == values
