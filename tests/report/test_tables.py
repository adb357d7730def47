"""Quantities beside each other, and lists that are cut."""

from __future__ import annotations

import io

import pytest

from tpusim.report.console import PageConsole
from tpusim.report.tables import (
    Table,
    caveats_text,
    changed_text,
    count_text,
    energy_text,
    escape,
    plain_table,
    power_text,
    size_text,
    some_text,
    times_text,
    us_text,
    whole_text,
)


@pytest.mark.parametrize(
    ("times_us", "texts"),
    [
        ((1330, 680), ["1.330 ms", "0.680 ms"]),
        ((5, 36), ["5.00 us", "36.00 us"]),
        ((2_000_000, 900_000), ["2.000 s", "0.900 s"]),
        # In one unit a hundredth and less would have no digits left.
        ((1330, 2), ["1.33 ms", "2.00 us"]),
        ((1330, 0), ["1.330 ms", "0.000 ms"]),
    ],
)
def test_times_that_are_compared_have_one_unit(times_us, texts):
    """That of the longest."""
    assert times_text(*(us * 10**6 for us in times_us)) == texts


@pytest.mark.parametrize(
    ("written", "value", "text"),
    [
        (us_text, 999.99, "999.99 us"),
        (us_text, 999.996, "1.00 ms"),
        (us_text, 999_994.0, "999.99 ms"),
        (us_text, 999_996.0, "1.000 s"),
        (us_text, 0.0, "0.00 us"),
        (size_text, 1023, "1023 B"),
        (size_text, 1023.6, "1.0 KiB"),
        (size_text, 2**20 - 1, "1.0 MiB"),
        (size_text, 2**30 - 1, "1.00 GiB"),
        (size_text, 0, "0 B"),
        (count_text, 999.94, "999.9 "),
        (count_text, 999_990.0, "1 M"),
        (count_text, 999.99e9, "1 T"),
        (count_text, 2.5e15, "2.5 P"),
        (energy_text, 0.0009999, "1 mJ"),
        (energy_text, 0.9996e-6, "1 uJ"),
        (energy_text, 0.9996, "1 J"),
        (energy_text, 999.4, "999 J"),
        (energy_text, 999.6, "1 kJ"),
        (energy_text, 2050.0, "2.05 kJ"),
        (energy_text, 3.1e6, "3.1 MJ"),
        (power_text, 59.54, "59.5 W"),
        (power_text, 1234.0, "1.23 kW"),
    ],
)
def test_what_is_rounded_decides_the_unit(written, value, text):
    """A thousand of one unit is one of the next."""
    assert written(value) == text


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([(0, 0)], ""),
        ([(3, 1)], "3 estimated, 1 warning: `tpusim run` lists them"),
        ([(0, 2)], "2 warnings: `tpusim run` lists them"),
        ([(1, 0), (0, 0), (3, 1)], "2 of 3 runs with up to 3 estimated, 1 warning: `tpusim run` lists them"),
    ],
)
def test_estimates_and_warnings_are_counted_in_one_line(runs, text):
    """Of many runs by those that have most."""
    assert caveats_text(*runs) == text


def test_a_list_that_is_cut_says_so():
    """With how many are left out."""
    assert some_text(["a", "b"], 2) == "a, b"
    assert some_text(["a", "b", "c", "d"], 2) == "a, b, and 2 more"


def test_figures_are_written_as_an_option_sets_them():
    """None is no text."""
    assert changed_text({"clock_hz": 2e9, "mxu.count": 8}) == " with clock_hz=2e+09, mxu.count=8"
    assert changed_text({}) == ""


def test_a_time_of_ages_leaves_room_for_others():
    """Nobody reads fifty digits of it."""
    assert times_text(10**60, 1) == ["1.000e+48 s", "0.00 us"]
    assert size_text(1e40) == "9.313e+30 GiB"
    assert (whole_text(123_456_789), whole_text(10**60)) == ("123,456,789", "1.000e+60")


NAME = "bitcast_dynamic-update-slice[0]_fusion.31"
FOLDER = "/home/user/envs/jax/lib/python3.11/site-packages/models/"
FIGURES = ("1.44 ms", "35.4%", "114")


def table() -> Table:
    """Return a table of two ops that differ in what stands at the end of long texts."""
    found = plain_table("op", ">time", ">share", ">count", "category", "<source", cut=("category",))
    for number in range(2):
        found.add_row(f"{escape(NAME)}{number}", *FIGURES, "convolution fusion", f"{FOLDER}model.py:9{number}")
    return found


def drawn(what: Table, width: int) -> list[str]:
    """Return the lines of a table in a terminal."""
    console = PageConsole(file=io.StringIO(), width=width, highlight=False)
    console.print(what)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [160, 120, 100, 80, 60, 40, 10])
def test_names_and_figures_are_whole_however_little_room_there_is(width):
    """Names go over several lines, and what does not fit nevertheless is wider than the terminal."""
    head, *lines = drawn(table(), width)
    starts = [number for number, line in enumerate(lines) if all(figure in line for figure in FIGURES)]
    assert len(starts) == 2
    # Times are seven characters wide, and right below their title.
    narrow = head.index("time") + len("time") - len(FIGURES[0])
    for number, (first, last) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True)):
        assert "".join(line[:narrow].strip() for line in lines[first:last]) == f"{NAME}{number}"


def test_sources_lose_their_beginning_before_names_are_narrowed():
    """Whole folders of it; what stands at the end tells lines of a program apart."""
    _, first, second = drawn(table(), 100)
    assert first == f"{NAME}0  1.44 ms  35.4%    114  convolution fu…  …/model.py:90"
    assert second == f"{NAME}1  1.44 ms  35.4%    114  convolution fu…  …/model.py:91"


@pytest.mark.parametrize(("width", "titles"), [(70, "category source"), (60, "category"), (46, "")])
def test_what_has_no_room_at_all_is_left_out_from_the_last_on(width, titles):
    """A column of one character says nothing."""
    assert drawn(table(), width)[0].split() == ["op", "time", "share", "count", *titles.split()]


def test_what_may_not_wrap_is_printed_in_full():
    """The terminal goes on in the next line, and it can be copied."""
    whole = plain_table("order", ">time", wraps=("none",))
    whole.add_row("x" * 100, "1.00 us")
    assert drawn(whole, 80)[1] == f"{'x' * 100}  1.00 us"


def test_words_of_a_title_stand_below_each_other_where_figures_are_short():
    """Rather than widen the table."""
    wide = plain_table("op", ">hbm.bandwidth_bytes_per_second", ">never measured")
    wide.add_row("x" * 40, "819 G", "12%")
    lines = drawn(wide, 44)
    assert max(map(len, lines)) <= 44
    assert "".join(line[18:30].strip() for line in lines[:3]) == "hbm.bandwidth_bytes_per_second"
