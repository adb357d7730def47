"""Modules of one instruction, and inputs for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.numerics.oracle import run_ours, run_xla

if TYPE_CHECKING:
    from collections.abc import Iterable

    Array = np.ndarray[Any, np.dtype[Any]]


def shape_text(name: str, sizes: Iterable[int]) -> str:
    """Return an array's shape in HLO text."""
    return f"{name}[{','.join(map(str, sizes))}]"


def numbered(sizes: Iterable[int], dtype: Any = np.int32) -> Array:
    """Return different numbers from 1 in row-major order."""
    sizes = tuple(sizes)
    return np.arange(1, np.prod(sizes, dtype=int) + 1).astype(dtype).reshape(sizes)


def computation(opcode: str, dtype: str = "s32", name: str = "f") -> str:
    """Return a computation that applies a binary opcode to two scalars."""
    scalars = f"  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
    return f"{name} {{\n{scalars}  ROOT c = {dtype}[] {opcode}(a, b)\n}}"


def program(result: str, instruction: str, parameters: Iterable[str], *computations: str) -> str:
    """Return a module whose parameters are ``p0, p1, ...`` and whose result is one instruction."""
    lines = [f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(parameters)]
    entry = "\n".join(["ENTRY e {", *lines, f"  ROOT r = {result} {instruction}", "}"])
    return "\n\n".join(["HloModule m", *computations, entry]) + "\n"


def check_exactly(text: str, inputs: list[Array]) -> None:
    """Assert that we and XLA give the same values, types and sizes for a module."""
    for one, two in zip(run_ours(text, inputs), run_xla(text, inputs), strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)
