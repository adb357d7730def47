"""Accelergy's tables as figures of a chip: what is taken, and what is refused with which words."""

from __future__ import annotations

import pytest

from tpusim.cost.area import area_by_unit
from tpusim.cost.energy import event_joules
from tpusim.errors import ConfigError
from tpusim.hardware.accelergy import read_tables
from tpusim.hardware.load import load_chip

# As Accelergy 0.4 writes them: components by their place in a tree, picojoules and square micrometres.
ERT = """\
ERT:
  version: 0.4
  tables:
    - name: system.tpu.hbm[0..3]
      actions:
        - name: byte
          arguments: {}
          energy: 20.5
        - name: row
          arguments: {}
          energy: 500
    - name: matrix
      actions:
        - name: bf16
          energy: 0.3
    - name: device
      actions:
        - name: cycle
          energy: 1
"""
ART = """\
ART:
  version: 0.4
  tables:
    - name: tpu.vmem
      area: 12500000.0
"""


def tables_of(tmp_path, text):
    """Return the overrides of a file with a text."""
    path = tmp_path / "tables.yaml"
    path.write_text(text)
    return read_tables(path)


def test_energies_and_areas_become_figures_of_the_chip(tmp_path):
    """In joules and square millimetres; both tables may stand in one file."""
    found = tables_of(tmp_path, ERT + ART)
    wanted = {"energy.hbm": 20.5e-12, "energy.hbm_rows": 500e-12, "energy.matrix_bf16": 0.3e-12, "area.vmem": 12.5}
    assert found == pytest.approx(wanted, rel=1e-9, abs=0)


def test_a_chip_with_them_takes_them(tmp_path):
    """What they do not name stays as it was."""
    chip, plain = load_chip("v6e", tables_of(tmp_path, ERT + ART)), load_chip("v6e")
    assert event_joules(chip)["hbm"] == pytest.approx(20.5e-12, rel=1e-9, abs=0)
    assert event_joules(chip)["vector"] == event_joules(plain)["vector"]
    assert area_by_unit(chip)["vmem"] == pytest.approx(12.5)
    assert area_by_unit(chip)["matrix"] == area_by_unit(plain)["matrix"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1", "under the key ERT or ART, found neither"),
        ("ERT: [", "expected tables of Accelergy"),
        ('x: !!timestamp "abc"', "expected tables of Accelergy"),
        ('x: !!bool "a"', "found a value that is not what its tag says"),
        ("x: !!int abc", "found a value that is not what its tag says"),
        (
            "x: !!binary \N{LATIN SMALL LETTER E WITH ACUTE}",
            r"tables\.yaml:1: .*found a value that is not what its tag says",
        ),
        ("ERT:\n  {{a: 1}: 2}", r"tables\.yaml:2: expected a text as a key, found a list or a table"),
        (
            ERT + ERT.partition("tables:")[2].lstrip("\n").replace("tpu.", "other."),
            "expected one component that states it, found several",
        ),
        ("ERT: {tables: [{name: x}]}", r"missing required field `actions`"),
        (ERT.replace("name: row", "name: rwo"), r"found hbm: rwo \(did you mean 'hbm: row'\?\)"),
        (f"{ERT}\n{ERT}", r"tables\.yaml:\d+: expected each key once in a table, found 'ERT' 2 times"),
        ("ERT: &a\n  tables: []\n  more: [*a, {b: 1, c: 2,\n  b: 1}]", r"tables\.yaml:4: .* found 'b' 2 times"),
        (ERT.replace("name: row", "name: byte"), "hbm: byte: expected one energy, found several"),
        (ART.replace("vmem", "vram"), "ART: expected one of matrix, vector, vmem.*found tpu.vram"),
    ],
)
def test_slips_are_refused_with_what_was_expected(tmp_path, text, words):
    """By file and table."""
    with pytest.raises(ConfigError, match=words):
        tables_of(tmp_path, text)


def test_text_that_is_no_yaml_is_refused_in_its_line(tmp_path):
    """In one line, like every error."""
    with pytest.raises(ConfigError, match=r"tables\.yaml:3: expected tables .* in YAML: .+$") as said:
        tables_of(tmp_path, "ERT:\n  tables: [1,\n  }")
    assert "\n" not in str(said.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    """Like a table that cannot be read."""
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        read_tables(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ERT:\n  a: " + "[" * 64 + "]" * 64, "tables.yaml:2: expected values in each other, at most 64, found 65"),
        # Where each is a possible key, libyaml 0.2.6 reads ahead and comes to a limit of its own first.
        ("ERT: " + "[" * 100_000, r"tables.yaml:1: expected .*(at most 64, found 65|maximum nesting depth)$"),
        ("a: &a x\nERT:\n  tables: [" + "*a," * 2000 + "]\n", "tables.yaml:3: expected aliases, at most 1000"),
        ("ERT:\n  tables: [" + "1," * 200_000 + "]\n", "tables.yaml:2: expected values, at most 100000"),
    ],
)
def test_a_file_ends_at_its_limits(tmp_path, text, words):
    """The reader in C goes as deep as its stack, and ends the process there."""
    with pytest.raises(ConfigError, match=words):
        tables_of(tmp_path, text)
