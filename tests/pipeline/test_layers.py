"""Layers of a file on an array by itself: what is run once for all, and what is too much to go through."""

from __future__ import annotations

import numpy as np
import pytest

from tpusim.errors import ConfigError, UnsupportedError
from tpusim.hardware.array import Array
from tpusim.hardware.buffers import Buffers
from tpusim.pipeline.layers import run_layers, run_layers_with_memory
from tpusim.program.layers import Convolution, Layer

ARRAY = Array(rows=8, columns=8, mode="scale-sim")
BUFFERS = Buffers(ifmap_words=1 << 16, filter_words=1 << 16, ofmap_words=1 << 16)


def layers(count: int, m: int) -> list[Layer]:
    """Return layers of one name each and one more row than the one before; each streams m rows through 64 folds."""
    return [Layer(name=f"l{number}", m=m + number, n=64, k=64) for number in range(count)]


@pytest.mark.parametrize(
    "run", [lambda all_: run_layers(all_, ARRAY, "cycle"), lambda a: run_layers_with_memory(a, ARRAY, BUFFERS)]
)
def test_cycles_of_all_layers_together_are_bounded(run):
    """Each layer has 64 folds of 1,000,016 cycles and more: four of them are 2^28 or so, and five too many."""
    with pytest.raises(UnsupportedError, match="cycles to go through one by one, at most 268435456, found 3"):
        run(layers(5, 1_000_000))


def test_layers_that_differ_in_names_alone_are_gone_through_once():
    """A hundred of them would have six times the cycles that are allowed."""
    alike = [Layer(name=f"l{number}", m=250_000, n=64, k=64) for number in range(100)]
    first, *others = run_layers_with_memory(alike, ARRAY, BUFFERS)
    assert len(others) == 99
    assert all(other == first for other in others)


LAYER = Layer(name="l", m=3, n=4, k=5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((LAYER, ARRAY), "layers: expected a list of Layer, or a path to a CSV file of them, found Layer"),
        (([LAYER, 5], ARRAY), "layers: expected a list of Layer"),
        ((5, ARRAY), "layers: expected a list of Layer, .* found 5"),
        (([LAYER], 8), "array: expected an Array, found 8"),
        (([LAYER], ARRAY, "cycles"), r"model: expected one of fast, cycle, found 'cycles' \(did you mean 'cycle'"),
    ],
)
def test_what_is_no_layers_array_or_model_is_refused(arguments, words):
    """One layer is no list of them; another word was taken for ``cycle``."""
    with pytest.raises(ConfigError, match=words):
        run_layers(*arguments)


@pytest.mark.parametrize("wrong", [(LAYER, ARRAY), ([5], ARRAY), ([LAYER], None)])
def test_arrays_with_srams_take_the_same(wrong):
    """One check for both."""
    with pytest.raises(ConfigError, match="expected"):
        run_layers_with_memory(*wrong, BUFFERS)


def test_layers_may_be_made_one_by_one():
    """What yields layers is as good as a list."""
    assert run_layers((layer for layer in [LAYER]), ARRAY) == run_layers([LAYER], ARRAY)


@pytest.mark.parametrize("of", [np.int8, np.int32, np.int64])
def test_sizes_of_numpy_are_python_s(of):
    """Products of them would overflow: three rows of 100 by 100 are more than eight bits, 100,000 cubed than 32."""
    most = min(100_000, int(np.iinfo(of).max))
    array, layer = Array(rows=of(8), columns=of(8), count=of(2)), Layer(name="l", m=of(most), n=of(most), k=of(most))
    whole = Array(rows=8, columns=8, count=2), Layer(name="l", m=most, n=most, k=most)
    assert repr(run_layers([layer], array)) == repr(run_layers([whole[1]], whole[0]))
    sizes = {"height": 100, "width": 100, "filter_height": 3, "filter_width": 3, "channels": 3, "stride": 1}
    assert repr(Convolution(**{key: of(size) for key, size in sizes.items()})) == repr(Convolution(**sizes))


def test_a_truth_is_no_size():
    """For Python it is a number."""
    with pytest.raises(ConfigError, match="array: rows: expected a whole number from 1 to 8192, found True"):
        Array(rows=True, columns=8)
