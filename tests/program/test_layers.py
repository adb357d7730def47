"""SCALE-Sim's two kinds of topology files, and what is said when one is wrong."""

from __future__ import annotations

import pytest

from tpusim.errors import ConfigError, ProgramError
from tpusim.program.layers import Convolution, Layer, RowWise, parse_layers
from tpusim.source import SourceText

GEMM = "Layer,M,N,K,\n"
CONVOLUTION = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"


def layers_of(text: str) -> list[Layer]:
    """Return the layers of a file."""
    return parse_layers(SourceText("layers.csv", text))


def test_products_are_read_by_their_header():
    """Blanks, empty lines, the comma at the end and a column of dense ratios change nothing."""
    found = layers_of(GEMM + "\nqkv, 512,768 ,64,\nff,1,2,3\nlast,4,5,6,1:1,\n")
    assert [(row.name, row.m, row.n, row.k) for row in found] == [
        ("qkv", 512, 768, 64),
        ("ff", 1, 2, 3),
        ("last", 4, 5, 6),
    ]


def test_a_convolution_is_output_pixels_by_filters_over_the_window():
    """A 3 x 3 filter has 10 x 8 places in 12 x 10 pixels, and 9 weights for each of 5 channels."""
    assert layers_of(CONVOLUTION + "a, 12, 10, 3, 3, 5, 64, 1,\n") == [
        Layer(
            name="a",
            m=80,
            n=64,
            k=45,
            convolution=Convolution(height=12, width=10, filter_height=3, filter_width=3, channels=5, stride=1),
        )
    ]


def test_strides_that_do_not_fit_are_rounded_up():
    """ceil((224 - 7 + 2) / 2) = 110, where other tools round down: SCALE-Sim's own 12,100 rows."""
    assert layers_of(CONVOLUTION + "Conv1,224,224,7,7,3,64,2,\n")[0].m == 12100


def test_depthwise_convolutions_are_one_product_a_channel():
    """SCALE-Sim knows them by the letters DP in their name."""
    found = layers_of(CONVOLUTION + "DP1,10,10,3,3,2,1,1,\n")
    assert [(row.name, row.m, row.n, row.k) for row in found] == [
        ("DP1Channel_0", 64, 1, 9),
        ("DP1Channel_1", 64, 1, 9),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        (GEMM, "a line for each layer"),
        ("name,rows,columns\na,1,2\n", r"layers.csv:1:1: expected a header 'Layer, M, N, K' or"),
        (GEMM + "a,1,2,3\nb,1,x,3\n", r"layers.csv:3:5: N: expected a whole number from 1, found 'x'"),
        (GEMM + "a,1,0,3\n", r"layers.csv:2:5: N: expected a whole number from 1, found '0'"),
        (GEMM + "a,1,,3\n", r"layers.csv:2:5: N: expected .* found ''"),
        (GEMM + "a,1,2,\n", r"layers.csv:2:5: expected a name and 3 numbers \(M, N, K\), found 2"),
        (CONVOLUTION + "a,4,4,5,5,1,1,1,\n", r"layers.csv:2:1: expected a filter no larger .* found 5x5 in 4x4"),
    ],
)
def test_wrong_files_are_refused_with_their_place(text, words):
    """File, line, column, what was expected and what was found."""
    with pytest.raises(ProgramError, match=words):
        layers_of(text)


def test_a_sparsity_says_how_many_rows_are_kept():
    """2:4 of 7 rows: 2 of the first four, and 2 of the other three."""
    (found,) = layers_of(GEMM + "a,1,2,7,2:4,\n")
    assert (found.kept, found.inner, found.macs) == ((2, 4), 4, 8)


@pytest.mark.parametrize("text", ["2:", "2", "5:4", "0:4", "a:b"])
def test_a_sparsity_that_is_none_is_refused(text):
    """Line, column and a caret."""
    with pytest.raises(ProgramError, match=r"layers.csv:2:9: .*sparsity"):
        layers_of(GEMM + f"a,1,2,3,{text},\n")


@pytest.mark.parametrize(
    "header",
    [
        "Layer name,Ifmap height,ifmap width,filter height,filter width,channel,num filters,strides,",
        "Layer, IFMAP Width, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,",
        "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides, Sparsity,",
    ],
)
def test_headers_of_scale_sims_own_files_are_taken(header):
    """With the slip that some of them have."""
    assert layers_of(f"{header}\na, 12, 10, 3, 3, 5, 64, 1,\n")[0].m == 80


@pytest.mark.parametrize(
    "header",
    [
        CONVOLUTION.replace("IFMAP Width", "IFMAP W"),
        CONVOLUTION.replace("Filter Height, Filter Width", "Filter Width, Filter Height"),
        CONVOLUTION.replace("Strides", "Strides, Batch Size"),
        "Layer,M,N,K,Sparsity,B\n",
        "Layer,M,K,N\n",
    ],
)
def test_columns_of_another_order_are_refused(header):
    """The numbers below them would be taken for others."""
    with pytest.raises(ProgramError, match=r"layers\.csv:1:1: expected a header"):
        layers_of(f"{header}a,1,2,3,4,5,6,7\n")


def test_cells_beyond_the_sparsity_are_refused():
    """At the first of them."""
    with pytest.raises(ProgramError, match=r"layers\.csv:2:13: expected 3 numbers and a sparsity, found more"):
        layers_of(GEMM + "a,1,2,3,2:4,9,9\n")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("m", -3, "layer 'a': m: expected a whole number, at least 1, found -3"),
        ("n", 0, "layer 'a': n: expected .* found 0"),
        ("k", 2.5, "layer 'a': k: expected a whole number, found 2.5"),
        ("m", "3", "found '3'"),
        ("m", True, "found True"),
        ("m", 10**30, "at most 9903520300447984"),
        ("kept", (5, 4), r"layer 'a': kept: expected a tuple \(N, M\) of whole numbers, N from 1 to M, found \(5, 4\)"),
        ("kept", (0, 4), r"found \(0, 4\)"),
        ("kept", [2, 4], r"found \[2, 4\]"),
        ("kept", (2.0, 4), "found"),
        ("name", 5, "layer: name: expected a text, found 5"),
    ],
)
def test_a_layer_that_cannot_be_is_refused(field, value, words):
    """Field, what was expected and what was found, as of an array."""
    with pytest.raises(ConfigError, match=words):
        Layer(**{"name": "a", "m": 3, "n": 4, "k": 5, field: value})


def test_an_image_and_a_draw_that_cannot_be_are_refused():
    """A stride of 0 would divide by it, and of one row there is no half."""
    with pytest.raises(ConfigError, match=r"convolution: stride: expected .* at least 1, found 0"):
        Convolution(height=4, width=4, filter_height=1, filter_width=1, channels=1, stride=0)
    with pytest.raises(ConfigError, match="group: expected a number of rows, at least 2, found 1"):
        RowWise(group=1, seed=1)


def test_the_largest_convolution_of_a_file_is_a_layer():
    """Its window has more weights than any size of a file."""
    side = 2**31 - 1
    assert layers_of(CONVOLUTION + f"a,{side},{side},{side},{side},{side},1,1,\n")[0].k == side**3
