"""Calls for LU, QR and Q become panels of columns and products, with the values of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.test_decompose import close, decomposed, normal, opcodes, values
from tpusim.ir.custom_calls import REGISTERED, CustomCall
from tpusim.limits import BLOCKS

CALLED = {
    "LuDecomposition": "(f32[{sizes}], s32[{batch}{least}], s32[{batch}{rows}])",
    "Qr": "(f32[{sizes}], f32[{batch}{least}])",
}


def called(target, batch, rows, columns):
    """Return a program of a call on matrices, and what is made of it."""
    lead = "".join(f"{size}," for size in batch)
    sizes, least = f"{lead}{rows},{columns}", min(rows, columns)
    shape = CALLED[target].format(sizes=sizes, batch=lead, least=least, rows=rows)
    return decomposed(f"""
    x = f32[{sizes}] parameter(0)
    ROOT out = {shape} custom-call(x), custom_call_target="{target}"
    """)


@pytest.mark.parametrize("target", CALLED)
@pytest.mark.parametrize(
    ("batch", "rows", "columns"),
    [((), 40, 40), ((), 300, 300), ((2, 2), 150, 140), ((), 140, 300), ((3,), 128, 129), ((), 129, 128)],
)
def test_calls_that_factor_matrices_go_by_panels_of_128(target, batch, rows, columns):
    """All of their results are those of the whole, exchanged rows among them."""
    module, made = called(target, batch, rows, columns)
    x = normal(*batch, rows, columns)
    for found, expected in zip(values(made, x), values(module, x), strict=True):
        assert found.shape == expected.shape
        assert close(found, expected, "custom-call")
    targets = [i.attributes["custom_call_target"] for i in made.entry.instructions if i.opcode == "custom-call"]
    assert sum("DecompositionBlock" in name for name in targets) == -(-min(rows, columns) // 128)
    assert target not in targets


@pytest.mark.parametrize(("rows", "columns", "count"), [(40, 40, 40), (300, 300, 300), (150, 145, 140)])
def test_q_is_made_of_panels_of_reflections(rows, columns, count):
    """Of vectors and factors that QR left; there may be fewer than columns."""
    module, made = decomposed(f"""
    x = f32[2,{rows},{columns}] parameter(0)
    t = f32[2,{count}] parameter(1)
    ROOT out = f32[2,{rows},{columns}] custom-call(x, t), custom_call_target="ProductOfElementaryHouseholderReflectors"
    """)
    packed, factors = values(called("Qr", (2,), rows, columns)[0], normal(2, rows, columns))
    factors = np.ascontiguousarray(factors[:, :count])
    assert close(values(made, packed, factors), values(module, packed, factors), "custom-call")
    assert opcodes(made)["custom-call"] == -(-count // 128)


def test_a_block_is_factored_where_it_lies():
    """Nothing is put into anything: the call's result is the matrix."""
    assert "dynamic-update-slice" not in opcodes(called("Qr", (), 128, 128)[1])


def test_calls_of_a_users_own_are_left(monkeypatch):
    """What is registered means what the user says."""
    monkeypatch.setitem(REGISTERED, "Qr", CustomCall())
    _, made = called("Qr", (), 300, 300)
    assert [i.attributes["custom_call_target"] for i in made.entry.instructions if i.opcode == "custom-call"] == ["Qr"]


def test_a_wide_matrix_has_few_panels():
    """Columns beside the square are solved for all at once."""
    _, made = called("LuDecomposition", (), 8, 128 * (BLOCKS.most + 1))
    assert opcodes(made)["custom-call"] == 2
