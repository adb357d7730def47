"""What a tile does one after another: products that feed each other, and what goes through a row again."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import ADD, lower_text
from tpusim.program.work import sum_work

SQUARE, BLOCK = "f32[1024,1024]{1,0:T(8,128)S(1)}", "f32[1024]{0:T(1024)S(1)}"
PRODUCT = "convolution({}, {}), dim_labels=bf_io->bf"


def stages_of(*lines):
    """Return the stages of a fusion of two arrays %a and %b in VMEM with these lines, the last its root."""
    *inner, root = (line.replace("$", SQUARE) for line in lines)
    called = "\n  ".join([f"%a = {SQUARE} parameter(0)", f"%b = {SQUARE} parameter(1)", *inner, f"ROOT {root}"])
    result = root.split(" = ")[1].split(" ")[0]
    entry = f"""%a = {SQUARE} parameter(0)
        %b = {SQUARE} parameter(1)
        ROOT %y = {result} fusion(%a, %b), kind=kOutput, calls=%f"""
    (kernel,) = lower_text(entry, f"{ADD}\n%f {{\n  {called}\n}}\n").steps
    if kernel.stages:
        assert sum_work(kernel.stages).ops == pytest.approx(kernel.work.ops)
        assert sum_work(kernel.stages).matmuls == kernel.work.matmuls
    return [(len(work.matmuls), bool(work.ops.get("eup"))) for work in kernel.stages]


P, SECOND = f"%p = $ {PRODUCT.format('%a', '%b')}", f"%q = $ {PRODUCT.format('%a', '%b')}"
MAXIMA = [
    "%z = f32[]{:T(128)} constant(0)",
    f"%m = {BLOCK} reduce(%p, %z), dimensions={{1}}, to_apply=%add",
    "%w = $ broadcast(%m), dimensions={0}",
]


def test_what_is_between_two_products_is_done_beside_the_second():
    """Which begins when the first has come out of the arrays."""
    second = f"%y = $ {PRODUCT.format('%e', '%b')}"
    assert stages_of(P, "%e = $ exponential(%p)", second) == [(1, False), (1, True)]


def test_what_goes_through_rows_again_is_done_behind_their_reduction():
    """The exponentials of a softmax."""
    assert stages_of(P, *MAXIMA, "%s = $ subtract(%p, %w)", "%y = $ exponential(%s)") == [(1, False), (0, True)]


def test_a_product_that_is_made_again_is_made_for_its_use():
    """Another one gives the maxima."""
    lines = (P, SECOND, *MAXIMA, "%s = $ subtract(%q, %w)", "%y = $ exponential(%s)")
    assert stages_of(*lines) == [(1, False), (1, True)]


@pytest.mark.parametrize(
    "lines",
    [
        ("%e = $ exponential(%a)", f"%y = $ {PRODUCT.format('%e', '%b')}"),
        (P, "%y = $ exponential(%p)"),
        (P, *MAXIMA[:1], "%e = $ exponential(%p)", f"%y = {BLOCK} reduce(%e, %z), dimensions={{1}}, to_apply=%add"),
        (P, *MAXIMA, "%y = $ exponential(%w)"),
        (P, SECOND, "%s = $ exponential(%p)", "%y = $ add(%s, %q)"),
    ],
    ids=["before", "behind", "reduced", "not again", "side by side"],
)
def test_all_else_is_done_beside_the_product(lines):
    """What it is made of, what is made of it, sums that leave the kernel, and a second product of its own."""
    assert stages_of(*lines) == []
