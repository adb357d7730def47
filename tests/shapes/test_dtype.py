"""Element types: all of HLO's, with the widths that NumPy, ml_dtypes and XLA give them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tpusim.errors import ProgramError
from tpusim.shapes.dtype import DTYPES, dtype


def test_every_element_type_of_hlo_is_known() -> None:
    """The names are those of XLA's primitive types that HLO text may hold."""
    integers = [f"{sign}{bits}" for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)]
    floats = "bf16 f16 f32 f64 f8e5m2 f8e4m3 f8e4m3fn f8e4m3b11fnuz f8e3m4 f8e5m2fnuz f8e4m3fnuz f8e8m0fnu f4e2m1fn"
    assert set(DTYPES) == {"pred", *integers, *floats.split(), "c64", "c128", "token", "opaque"}


@pytest.mark.parametrize("name", [name for name, row in DTYPES.items() if row.is_integer])
def test_integers_have_the_width_that_ml_dtypes_gives(name: str) -> None:
    """The oracle is ``iinfo``; the name's number is the width too."""
    word = name.replace("s", "int").replace("u", "uint")
    assert dtype(name).bits == ml_dtypes.iinfo(getattr(ml_dtypes, word, word)).bits == int(name[1:])


@pytest.mark.parametrize("name", [name for name in DTYPES if name.startswith(("f8", "f4"))])
def test_narrow_floats_have_the_width_that_ml_dtypes_gives(name: str) -> None:
    """The oracle is ``finfo`` of the type of the same exponent, mantissa and variant."""
    word = f"float{name[1]}_{name[2:]}"
    assert dtype(name).bits == ml_dtypes.finfo(getattr(ml_dtypes, word)).bits


@pytest.mark.parametrize(
    ("name", "numpy_type"),
    [
        ("pred", np.bool_),
        ("bf16", ml_dtypes.bfloat16),
        ("f16", np.float16),
        ("f32", np.float32),
        ("f64", np.float64),
        ("c64", np.complex64),
        ("c128", np.complex128),
    ],
)
def test_wide_types_fill_what_numpy_stores(name: str, numpy_type: type) -> None:
    """``pred`` fills a byte, a complex number two floats."""
    assert dtype(name).bits == 8 * np.dtype(numpy_type).itemsize


@pytest.mark.parametrize(("name", "bits"), [("s4", 8), ("f4e2m1fn", 8), ("u1", 8), ("bf16", 16), ("token", 0)])
def test_without_a_layout_elements_fill_whole_bytes(name: str, bits: int) -> None:
    """XLA's ``ByteSizeOf`` charges a byte for four bits unless the layout says ``E(4)``."""
    assert dtype(name).storage_bits == bits


@pytest.mark.parametrize(("name", "kind"), [("pred", "is_pred"), ("s4", "is_signed"), ("u4", "is_unsigned")])
def test_each_type_is_of_one_kind(name: str, kind: str) -> None:
    """Truth values are no integers, and signed integers are not unsigned."""
    kinds = ("is_pred", "is_signed", "is_unsigned", "is_float", "is_complex")
    assert [k for k in kinds if getattr(dtype(name), k)] == [kind]
    assert dtype(name).is_integer == (name != "pred")


def test_an_unknown_type_is_refused_with_the_nearest_one() -> None:
    """A slip of the finger is answered by the name that was meant."""
    with pytest.raises(ProgramError, match=r"found 'b16' \(did you mean 'bf16'\?\)"):
        dtype("b16")
