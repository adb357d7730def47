"""Chips as tables and as JSON: what is shown, in which unit, and whether it fits a terminal."""

from __future__ import annotations

import io
import json
import re

import msgspec
import pytest
from rich.console import Console

from tpusim.hardware.load import chip_facts, chip_names, load_chip
from tpusim.report.json.facts import chip_page, chip_rows
from tpusim.report.json.page import json_text
from tpusim.report.terminal.chips import _human, render_chip, render_chip_list

WIDTH = 100


def page_of_list() -> str:
    """Return the list of all chips as printed on a terminal of 100 columns."""
    console = Console(file=io.StringIO(), width=WIDTH)
    render_chip_list([load_chip(name) for name in chip_names()], console)
    return console.file.getvalue()


def page_of(name: str, **overrides: float) -> str:
    """Return the page of one chip as printed on a terminal of 100 columns."""
    console = Console(file=io.StringIO(), width=WIDTH)
    render_chip(load_chip(name, overrides), chip_facts(name, overrides), console)
    return console.file.getvalue()


def test_the_list_has_a_line_per_chip() -> None:
    """Every shipped chip begins a line."""
    first_words = [line.split(" ")[0] for line in page_of_list().splitlines()]
    assert [word for word in first_words if word in chip_names()] == list(chip_names())


def test_the_list_shows_the_figures_that_people_know() -> None:
    """v5e: 1.5 GHz, four units of 128x128, 196.6 TFLOP/s, 819 GB/s, 16 GiB, 128 MiB."""
    line = next(line for line in page_of_list().splitlines() if line.startswith("v5e"))
    for figure in ("2023", "1.5", "4 x 128x128", "196.6", "819", "16", "128", "TPU v5 lite"):
        assert figure in line


@pytest.mark.parametrize("name", chip_names())
def test_nothing_is_cut_off_at_100_columns(name: str) -> None:
    """Neither an ellipsis nor a line that is too long; every key is there in full."""
    page = page_of(name)
    assert "…" not in page + page_of_list()
    assert max(len(line) for line in page.splitlines()) <= WIDTH
    assert all(fact.key.rpartition(".")[2] in page for fact in chip_facts(name))


def test_a_page_shows_value_confidence_and_source_in_one_line() -> None:
    """The bandwidth of v5e in GB/s, not as 819000000000."""
    line = next(line for line in page_of("v5e").splitlines() if "819 GB/s  " in line)
    assert "published" in line
    assert "Google Cloud" in line


def test_a_page_shows_the_notes() -> None:
    """How the costs of a v4 kernel were fitted can be read on the terminal."""
    words = " ".join(page_of("v4-megacore").split())
    assert "fitted" in words
    assert "nine in ten fits to rows drawn at random" in words


def test_a_page_shows_overrides() -> None:
    """A clock of 2.2 GHz raises the peak of v7x, and is marked as the user's."""
    page = page_of("v7x", clock_hz=2.2e9)
    assert "peak 1153 TFLOP/s" in page
    assert "2.2 GHz  user" in page


def test_a_page_counts_what_nobody_published() -> None:
    """The last line says how much of the chip is guessed."""
    facts = chip_facts("v6e")
    guessed = sum(fact.confidence in ("estimated", "fitted") for fact in facts)
    assert f"{guessed} of {len(facts)} quantities" in page_of("v6e").splitlines()[-1]


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (819e9, "B/s", "819 GB/s"),
        (2.765e12, "B/s", "2.765 TB/s"),
        (2**24, "B", "16 MiB"),
        (16_384, "B", "16 KiB"),
        (32, "B", "32 B"),
        (0, "B", "0 B"),
        (1.75e9, "Hz", "1.75 GHz"),
        (7e8, "Hz", "700 MHz"),
        (0.38e-6, "s", "380 ns"),
        (1e-6, "s", "1 us"),
        (0.0, "s", "0 s"),
        (True, "", "yes"),
        (2020, "year", "2020"),
        (2.0, "rows/cycle", "2 rows/cycle"),
    ],
)
def test_numbers_are_shown_in_the_unit_that_people_say(value: float, unit: str, shown: str) -> None:
    """Decimal multiples for rates, clocks and times, binary ones for sizes."""
    assert _human(value, unit) == shown


@pytest.mark.parametrize("name", chip_names())
def test_json_keeps_exact_numbers(name: str) -> None:
    """A round trip through JSON text gives back every value and source."""
    facts = chip_facts(name)
    data = json.loads(json_text(chip_page(load_chip(name), facts)))
    assert [tuple(fact.values()) for fact in data["facts"]] == [msgspec.structs.astuple(fact) for fact in facts]
    assert data["peak_bf16_flops_per_second"] == load_chip(name).peak_flops_per_second


def test_json_list_has_all_chips() -> None:
    """One object per chip, in the order given, ready for json.dumps."""
    data = json.loads(json_text(chip_rows(load_chip(name) for name in chip_names())))
    assert [chip["name"] for chip in data] == list(chip_names())
    assert data[4]["hbm_bandwidth_bytes_per_second"] == 819e9


def test_what_moves_no_time_says_so_on_the_page_and_in_json() -> None:
    """The year of a chip, but not its clock."""
    marked = {fact.key for fact in chip_facts("v5e") if fact.is_report_only}
    assert "year" in marked
    assert "clock_hz" not in marked
    assert page_of("v5e").count("report only: ") == len(marked)
    facts = json.loads(json_text(chip_page(load_chip("v5e"), chip_facts("v5e"))))["facts"]
    assert {fact["key"] for fact in facts if fact["is_report_only"]} == marked


def test_a_chip_says_what_it_draws_idle_how_large_it_is_and_what_it_costs() -> None:
    """The published 90 W of v4 and its listed price; v7x has none."""
    assert re.search(r"a chip: 90 W idle, a die of about 600 mm2 .*, \$3\.22 an hour", page_of("v4"))
    assert "an hour" not in page_of("v7x")
    data = json.loads(json_text(chip_page(load_chip("v4"), chip_facts("v4"))))
    assert (round(data["area_mm2"]), data["usd_per_chip_hour"]) == (600, 3.22)
