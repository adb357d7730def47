"""The table of units where chip files meet it."""

from __future__ import annotations

import pytest

from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip


def test_a_cost_of_a_unit_that_does_not_exist_is_refused():
    """The unit at the end of the key is one of the table's; a slip would else cost nothing."""
    with pytest.raises(ConfigError, match=r"expected one of vector, eup, .* at its end, found 'valu'"):
        load_chip("v5e", {"vector_ops.ops.add.valu": 2})


def test_a_cost_may_be_given_of_any_unit_that_counts_operations():
    """One that the common table leaves at nothing."""
    assert load_chip("v5e", {"vector_ops.ops.add.xlu": 2}).vector_ops.ops["add"] == {"vector": 1.0, "xlu": 2.0}
