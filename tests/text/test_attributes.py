"""Kinds of attributes: every attribute of every operation can be read and printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.programs import entry, source
from tpusim.ir.attributes import BackendConfig, Metadata
from tpusim.ir.ops import COMMON_ATTRIBUTES, OPERATIONS
from tpusim.text import parse_module, print_module
from tpusim.text.attributes.structured import show_window, take_window
from tpusim.text.attributes.table import attribute_kind
from tpusim.text.lexer import Lexer
from tpusim.text.strings import quoted, take_string


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_every_attribute_of_an_operation_has_a_kind(opcode: str) -> None:
    """No row of the table names an attribute that the parser does not know."""
    operation = OPERATIONS[opcode]
    for name in operation.required | operation.optional | COMMON_ATTRIBUTES:
        assert attribute_kind(opcode, name)


def test_the_same_name_may_mean_two_things() -> None:
    """``slice_sizes`` of a gather is a list, of a permutation a list of lists; likewise ``algorithm``."""
    assert attribute_kind("gather", "slice_sizes") is not attribute_kind("collective-permute", "slice_sizes")
    assert attribute_kind("dot", "algorithm") is not attribute_kind("rng-bit-generator", "algorithm")
    assert attribute_kind("gather-start", "slice_sizes") is attribute_kind("gather", "slice_sizes")


@given(st.text())
def test_a_string_comes_back_from_its_escapes(text: str) -> None:
    """Any text, with quotes, controls and letters beyond ASCII."""
    assert take_string(Lexer(source(quoted(text)))) == text


@pytest.mark.parametrize(
    ("escaped", "text"),
    [(r"\x41\101\n", "AA\n"), (r"\303\251", "é"), (r"\u00e9", "é"), (r"\'\"\\", "'\"\\"), (r"\377", "\udcff")],
)
def test_escapes_are_those_of_c(escaped: str, text: str) -> None:
    """Octal and hexadecimal bytes are UTF-8; a byte that is not stays a byte."""
    assert take_string(Lexer(source(f'"{escaped}"'))) == text


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("{size=2x3 stride=1x1}", "{size=2x3}"),
        ("{pad=0_0x1_2 size=2x3 rhs_reversal=0x1}", "{size=2x3 pad=0_0x1_2 rhs_reversal=0x1}"),
        ("{size=12 stride=11 lhs_dilate=12}", "{size=12 stride=11 lhs_dilate=12}"),
        ("{}", "{}"),
    ],
)
def test_a_window_prints_only_what_is_not_the_default(text: str, printed: str) -> None:
    """As XLA prints it, in XLA's order."""
    assert show_window(take_window(Lexer(source(text)))) == printed


@pytest.mark.parametrize(("text", "printed"), [("0.00001", "1e-05"), ("1", "1"), ("0.001", "0.001")])
def test_epsilon_prints_as_the_shortest_number(text: str, printed: str) -> None:
    """Decimal numbers lose trailing zeros."""
    lines = ("x = f32[2,2] parameter(0)", "s = f32[2] parameter(1)")
    norm = f"n = f32[2,2] batch-norm-inference(x, s, s, s, s), epsilon={text}, feature_index=0"
    assert f"epsilon={printed}, feature_index=0" in print_module(parse_module(source(entry(*lines, norm))))


def test_a_backend_config_may_be_a_string_with_json() -> None:
    """XLA prints either; both decode."""
    plain = BackendConfig.decode('{"known_trip_count":{"n":"7"}}')
    string = BackendConfig.decode(r'"{\"known_trip_count\":{\"n\":\"7\"}}"')
    assert plain == string
    assert plain.known_trip_count == 7
    assert BackendConfig.decode('{"known_trip_count":{"n":"-3"}}').known_trip_count is None
    assert BackendConfig.decode("{'not': json}") == BackendConfig()


def test_bounds_of_sparse_cores_are_not_taken_for_blocks_of_registers() -> None:
    """They count elements: such a kernel is tiled as one without bounds, and keeps the compiler's estimate."""
    window = '"window_config":{"output_window_bounds":["1","128","128"],"estimated_cycles":"77"}'
    dense = BackendConfig.decode(f"{{{window}}}").window_config
    sparse = BackendConfig.decode(f'{{{window},"compute_type":"COMPUTE_TYPE_TILE"}}').window_config
    assert dense is not None
    assert sparse is not None
    assert (dense.output_window_bounds, sparse.output_window_bounds) == ((1, 128, 128), ())
    assert dense.estimated_cycles == sparse.estimated_cycles == 77


def test_metadata_decodes_from_the_kept_text() -> None:
    """The braces stay with the text."""
    line = 'p = f32[] parameter(0), metadata={op_name="jit(f)/add", stack_frame_id=5}'
    parsed = parse_module(source(entry(line))).entry.root
    assert parsed.metadata == Metadata(op_name="jit(f)/add", stack_frame_id=5)
