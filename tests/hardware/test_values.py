"""Values of chips: prefixes, factors, and what a key may hold."""

from __future__ import annotations

import re

import msgspec
import pytest

from tpusim.errors import ConfigError
from tpusim.hardware.fields import FIELDS, Factor, parse_value, read_value, whole_where_due
from tpusim.hardware.load import load_chip, override_chip, parse_override
from tpusim.hardware.units import stated_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16Mi", 16 * 2**20),
        ("1.5Gi", 1.5 * 2**30),
        ("819G", 819 * 10**9),
        ("819 GB/s", 819 * 10**9),
        ("1.2e12", 1.2e12),
        ("940MHz", 940 * 10**6),
        ("2us", pytest.approx(2e-6)),
        ("17_179", 17179),
        ("-3", -3),
        ("x2", Factor(2)),
        ("x0.5", Factor(0.5)),
        ("true", True),
        ("length16", "length16"),
        (7, 7),
    ],
)
def test_texts_are_numbers_with_prefixes(text, value):
    """A whole number stays one where its prefix leaves it so."""
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value) or isinstance(parse_value(text), float)


def test_a_factor_is_of_what_the_base_has():
    """In the type of the key: so many times as many arrays are a whole number of them."""
    chip = load_chip("v6e")
    value = read_value("mxu.count", Factor(1.5), chip.mxu.count, "test")
    assert value == 1.5 * chip.mxu.count
    assert type(value) is int


@pytest.mark.parametrize(
    ("key", "by", "found"),
    [("vmem.capacity_bytes", "x0.3", 40265318), ("mxu.count", "x0.7", 1), ("clock_hz", "x0.3", 0.3 * 1.75e9)],
)
def test_a_factor_of_a_whole_number_is_one(key, by, found):
    """The nearest, as along a range; of all other keys it is what it is."""
    before = stated_value(load_chip("v6e"), key)
    value = read_value(key, by, before, "test")
    assert value == pytest.approx(found)
    assert type(value) is type(before)
    assert whole_where_due(key, float(by[1:]) * before) == value


@pytest.mark.parametrize("by", ["x0.1", "x1e308", "x1e400"])
def test_a_factor_that_leaves_nothing_or_too_much_is_refused(by):
    """Half an array is none, and what no float holds is no number."""
    with pytest.raises(ConfigError, match=r"mxu\.count: expected a whole number from 1, found"):
        read_value("mxu.count", by, 2, "test")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("mxu.cont", 1, "did you mean 'mxu.count'"),
        ("mxu.count", 2.5, "expected a whole number"),
        ("ici.wrap", Factor(2), "expected a value"),
        ("hbm.bandwidth_bytes_per_second", "fast", "expected bytes per second"),
    ],
)
def test_what_a_key_cannot_hold_is_refused(key, value, said):
    """With the nearest known key."""
    with pytest.raises(ConfigError, match=said):
        read_value(key, value, stated_value(load_chip("v6e"), key), "test")


def test_an_override_is_written_as_in_a_study():
    """By the file and by a chip that is there, from texts of the command line and from Python."""
    over = dict(
        map(parse_override, ("hbm.bandwidth_bytes_per_second=x2", "vmem.capacity_bytes=16Mi", "mxu.count=x0.5"))
    )
    chip, whole = load_chip("v6e", over), load_chip("v6e")
    assert chip.vmem.capacity_bytes == 16 * 2**20
    assert chip.hbm.bandwidth_bytes_per_second == 2 * whole.hbm.bandwidth_bytes_per_second
    assert chip.mxu.count * 2 == whole.mxu.count
    assert override_chip(whole, over) == chip


def test_a_chip_with_a_figure_replaced_shares_all_that_stays():
    """A sweep of thousands of chips held 25 KB for each."""
    chip = load_chip("v5e")
    other = override_chip(chip, {"hbm.bandwidth_bytes_per_second": 1e12})
    assert other.hbm == msgspec.structs.replace(chip.hbm, bandwidth_bytes_per_second=1e12)
    shared = {name for name in chip.__struct_fields__ if getattr(chip, name) is getattr(other, name)}
    assert shared == set(chip.__struct_fields__) - {"hbm"}


@pytest.mark.parametrize("name", ["v4", "v5e"])
@pytest.mark.parametrize("value", ["x2", "x0", 0, 1, "64Mi"])
def test_a_chip_that_is_there_takes_what_its_name_takes(name, value):
    """Key by key the same chip or the same words, also where its file states nothing: ``cmem``, costs of operations."""
    keys = [*FIELDS, "vector_ops.ops.add.vector", "vector_ops.ops.add.eup", "devices.3.clock", "mxu.rate_by_type.s8"]
    told = [
        (_told(lambda over=over: load_chip(name, over)), _told(lambda over=over: override_chip(load_chip(name), over)))
        for over in ({key: value} for key in keys)
    ]
    assert [by_name for by_name, _ in told] == [by_chip for _, by_chip in told]


def _told(chip):
    """Return the chip that comes back, or what is said instead, but for what the base has where that is no number."""
    try:
        return chip()
    except ConfigError as error:
        return re.sub(r"the base has .*,", "the base has", str(error))


def test_the_cost_of_an_operation_takes_a_factor():
    """Of the common table, which stands in no chip's own file."""
    key = "vector_ops.ops.tanh.eup"
    assert stated_value(load_chip("v5e", {key: "x2"}), key) == 2 * stated_value(load_chip("v5e"), key) > 0


@pytest.mark.parametrize(
    ("name", "over"),
    [
        ("v4", {"cmem.read_bytes_per_second": 0}),
        ("v4", {"cmem.write_bytes_per_second": 0}),
        ("v5e", {"cmem.capacity_bytes": "64Mi"}),
    ],
)
def test_a_memory_that_nothing_can_be_read_from_is_refused_of_any_chip(name, over):
    """No copy to it would ever end."""
    with pytest.raises(ConfigError, match=f"{name}: cmem: expected bandwidths above 0"):
        override_chip(load_chip(name), over)
