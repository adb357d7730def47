"""An array that a kernel reads in several roles: each is fetched for itself, or once where one block does for both."""

from __future__ import annotations

import json

import pytest

from tests.lowering.hlo import kernel_named, lower_text

BIG = "bf16[8192,8192]{1,0:T(8,128)(2,1)}"
SMALL = "f32[256,256]{1,0:T(8,128)}"


def kernel_of(body, operands, shape=BIG, config="", chip="v5e"):
    """Return the kernel of a fusion of some operands, each named as a parameter of an entry, that is given its body."""
    names = dict.fromkeys(operands)
    given = "\n".join(f"%{name} = {shape} parameter({number})" for number, name in enumerate(names))
    taken = "\n".join(f"%p{number} = {shape} parameter({number})" for number in range(len(operands)))
    call = f"ROOT %y = {shape} fusion({', '.join(f'%{name}' for name in operands)}), kind=kOutput, calls=%f"
    entry = f"{given}\n{call}, backend_config={config}" if config else f"{given}\n{call}"
    return kernel_named(lower_text(entry, f"%f {{\n{taken}\n{body.replace('SHAPE', shape)}\n}}\n", chip), "y")


def bounds(**given):
    """Return a backend_config that states bounds."""
    return json.dumps({"window_config": {f"{key}_bounds": [str(n) for n in values] for key, values in given.items()}})


def fetched(kernel):
    """Return the fetches and bytes of each access but the result's."""
    return [(stream.fetches, stream.block_bytes) for stream in kernel.streams if not stream.is_output]


PRODUCT = "ROOT %c = SHAPE convolution(%p0, %p{}), dim_labels={}->bf"


@pytest.mark.parametrize("labels", ["bf_io", "fb_io", "bf_oi"])
@pytest.mark.parametrize("chip", ["v5e", "v3"])
def test_both_sides_of_a_product_are_fetched_as_two_arrays_are(labels, chip):
    """Of one array, named once or twice: in either role as often, and with as much VMEM, as two arrays would be."""
    of_two = kernel_of(PRODUCT.format(1, labels), "xw", chip=chip)
    for kernel in (
        kernel_of(PRODUCT.format(0, labels), "x", chip=chip),
        kernel_of(PRODUCT.format(1, labels), "xx", chip=chip),
    ):
        assert sorted(fetched(kernel)) == sorted(fetched(of_two))
        assert kernel.vmem_bytes == of_two.vmem_bytes
        assert {stream.operand for stream in kernel.streams} == {"x", "y"}


def test_what_is_made_for_both_sides_is_made_for_each():
    """One value that both are made of takes the vector unit as long as two alike ones."""
    one = "%t = SHAPE tanh(%p0)\nROOT %c = SHAPE convolution(%t, %t), dim_labels=bf_io->bf"
    two = "%t = SHAPE tanh(%p0)\n%u = SHAPE tanh(%p1)\nROOT %c = SHAPE convolution(%t, %u), dim_labels=bf_io->bf"
    assert kernel_of(one, "x").work.ops == kernel_of(two, "xw").work.ops


SUMMED = {
    "fb_io": bounds(kernel_window=(8, 2), output_window=(32, 2), input_window=(8, 2), iteration=(1, 1, 4)),
    "bf_io": bounds(kernel_window=(16, 2), output_window=(32, 2), input_window=(32, 1), iteration=(1, 1, 2)),
    "bf_oi": bounds(kernel_window=(32, 1), output_window=(32, 2), input_window=(32, 1), iteration=(1, 1, 2)),
}


@pytest.mark.parametrize(("labels", "count"), [("fb_io", 1), ("bf_io", 2), ("bf_oi", 1)])
def test_a_block_that_is_that_of_both_sides_is_fetched_once(labels, count):
    """Through what is summed: of ``x.T @ x`` and ``x @ x.T`` either side takes the same part each time."""
    kernel = kernel_of(PRODUCT.format(0, labels), "x", SMALL, SUMMED[labels])
    assert kernel.tiles > 1
    assert len(fetched(kernel)) == count


ADDED = "%c = SHAPE convolution(%p0, %p1), dim_labels=bf_io->bf\nROOT %s = SHAPE add(%c, %p{})"
ROWS = bounds(kernel_window=(32, 2), output_window=(8, 2), input_window=(8, 2), iteration=(1, 4, 1))
COLUMNS = bounds(kernel_window=(32, 1), output_window=(32, 1), input_window=(32, 2), iteration=(2, 1, 1))
BOTH = bounds(kernel_window=(32, 1), output_window=(8, 1), input_window=(8, 2), iteration=(2, 4, 1))
BYTES = 4.0 * 256 * 256


@pytest.mark.parametrize(
    ("config", "added", "reads"),
    [
        # The rows that stream past are those that are added, and weights that stay are all there.
        (ROWS, 0, [(4, BYTES / 4), (1, BYTES)]),
        (ROWS, 1, [(4, BYTES / 4), (1, BYTES)]),
        (COLUMNS, 0, [(1, BYTES), (2, BYTES / 2)]),
        (COLUMNS, 1, [(1, BYTES), (2, BYTES / 2)]),
        (BOTH, 0, [(8, BYTES / 4), (8, BYTES / 8), (2, BYTES / 2)]),
        (BOTH, 1, [(8, BYTES / 4), (2, BYTES / 2), (8, BYTES / 8)]),
    ],
)
def test_an_operand_that_is_added_to_the_product_again_is_read_again(config, added, reads):
    """With the blocks of the result, unless these are among what is there for the product."""
    assert fetched(kernel_of(ADDED.format(added), "xw", SMALL, config)) == reads


def test_slices_of_one_array_are_fetched_apart():
    """Queries and keys that one product made: rows of each, as if they were two arrays."""
    made = "bf16[8192,1024]{1,0:T(8,128)(2,1)}"
    called = f"""%f {{
  %p = bf16[8192,3072]{{1,0:T(8,128)(2,1)}} parameter(0)
  %q = {made} slice(%p), slice={{[0:8192], [0:1024]}}
  %k = {made} slice(%p), slice={{[0:8192], [1024:2048]}}
  ROOT %c = {BIG} convolution(%q, %k), dim_labels=bf_oi->bf
}}
"""
    entry = (
        f"%x = bf16[8192,3072]{{1,0:T(8,128)(2,1)}} parameter(0)\nROOT %y = {BIG} fusion(%x), kind=kOutput, calls=%f"
    )
    given = f"%x = {made} parameter(0)\n%w = {made} parameter(1)"
    product = f"ROOT %c = {BIG} convolution(%x, %w), dim_labels=bf_oi->bf"
    two = f"{given}\nROOT %y = {BIG} fusion(%x, %w), kind=kOutput, calls=%f", f"%f {{\n{given}\n{product}\n}}\n"
    kernels = [kernel_named(lower_text(*text), "y") for text in ((entry, called), two)]
    assert fetched(kernels[0]) == fetched(kernels[1])


def made_of(result, *products):
    """Return the lines of products of two operands each, and of what is made of them."""
    lines = [f"%c{n} = SHAPE convolution(%p{a}, %p{b}), dim_labels=bf_io->bf" for n, (a, b) in enumerate(products)]
    return "\n".join([*lines, f"ROOT %s = SHAPE {result}(%c0, %c1)"])


def by_operand(kernel):
    """Return the fetches of each operand, by name."""
    return {stream.operand: stream.fetches for stream in kernel.streams if not stream.is_output}


def test_weights_of_two_products_of_one_array_are_fetched_alike():
    """A gate and what it lets through: rows that stream past both once, and as many blocks of either's weights."""
    kernel = kernel_of(made_of("multiply", (0, 1), (0, 2)), "xwu")
    one = kernel_of(PRODUCT.format(1, "bf_io"), "xw")
    assert by_operand(kernel) == {"x": 512, "w": 512, "u": 512} == dict(by_operand(one), u=512)


def test_sides_of_products_that_are_added_are_fetched_alike():
    """Two products of two arrays each, whose results go through the same loops."""
    found = by_operand(kernel_of(made_of("add", (0, 1), (2, 3)), "xwvu"))
    assert found["x"] == found["v"]
    assert found["w"] == found["u"]


def test_a_product_that_is_computed_twice_reads_its_sides_once():
    """As softmax has it, once for the largest and once for the rest."""
    found = kernel_of(made_of("subtract", (0, 1), (0, 1)), "xw")
    assert fetched(found) == fetched(kernel_of(PRODUCT.format(1, "bf_io"), "xw"))


def test_a_product_of_another_product_is_what_the_kernel_is_made_around():
    """Both sides of the first are its left side: rows stream past them, and its columns are not cut."""
    chain = "%c = SHAPE convolution(%p0, %p1), dim_labels=bf_io->bf\n%t = SHAPE tanh(%c)\n"
    found = kernel_of(f"{chain}ROOT %d = SHAPE convolution(%t, %p2), dim_labels=bf_io->bf", "xwu")
    fetches = by_operand(found)
    assert fetches["x"] == fetches["w"]
    assert [loop.over for loop in found.loops if loop.over == "columns"] == []
