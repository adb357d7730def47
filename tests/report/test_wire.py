"""Fields in the wire format of protocol buffers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.report.protos import fields, packed
from tpusim.report.viewers.xprof import wire


def test_the_examples_of_the_encoding_document():
    """150 as field 1, "testing" as field 2, and a packed list as field 6 (protobuf.dev, Encoding)."""
    assert wire.message({1: 150}) == bytes.fromhex("089601")
    assert wire.message({2: "testing"}) == bytes.fromhex("120774657374696e67")
    assert wire.message({6: [3, 270, 86942]}) == bytes.fromhex("3206038e029ea705")


def test_a_negative_integer_takes_ten_bytes():
    """Its 64 bits in two's complement (protobuf.dev, Encoding: signed integers)."""
    assert wire.varint(-2) == bytes.fromhex("feffffffffffffffff01")


@given(st.lists(st.integers(0, 2**64 - 1)), st.floats(allow_nan=False), st.text())
def test_what_is_written_is_read(numbers, number, words):
    """By a reader that shares no line with the writer."""
    message = wire.message({5: numbers, 3: number, 4: words, 6: None})
    found = fields(message)
    assert packed(b"".join(found[5])) == numbers
    assert found[3] == [number]
    assert found[4] == [words.encode()]
