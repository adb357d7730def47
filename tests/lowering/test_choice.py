"""Tiles that can be stated: what is tried, and that a text which states them runs as was said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from tpusim.cost.tile import alone_ps
from tpusim.hardware.load import load_chip
from tpusim.lowering.kernels.choice import chosen_tiles, tried_tiles
from tpusim.pipeline.compile import compile
from tpusim.pipeline.stages import lower
from tpusim.semantics.contents import running_computations
from tpusim.semantics.products import lettered
from tpusim.shapes.address import physical_bytes
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

PRODUCTS = {
    "a plain dot": (
        "f32[1024,2048]{1,0:T(8,128)}",
        "f32[2048,512]{1,0:T(8,128)}",
        "f32[1024,512]{1,0:T(8,128)}",
        "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "heads of a batch": (
        "f32[4,256,12,64]{3,1,2,0:T(8,128)}",
        "f32[4,256,12,64]{3,1,2,0:T(8,128)}",
        "f32[4,12,256,256]{3,2,1,0:T(8,128)}",
        "dot(x, y), lhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}",
    ),
    "two dimensions summed": (
        "f32[512,12,64]{2,1,0:T(8,128)}",
        "f32[12,64,768]{2,1,0:T(8,128)}",
        "f32[512,768]{1,0:T(8,128)}",
        "dot(x, y), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}",
    ),
    "a vector": (
        "f32[2048,4096]{1,0:T(8,128)}",
        "f32[4096]{0:T(1024)}",
        "f32[2048]{0:T(1024)}",
        "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "a convolution": (
        "f32[32,28,28,128]{3,0,2,1:T(8,128)}",
        "f32[3,3,128,256]{3,2,1,0:T(8,128)}",
        "f32[32,28,28,256]{3,0,2,1:T(8,128)}",
        "convolution(x, y), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    ),
    "a gradient of weights": (
        "f32[32,28,28,128]{3,0,2,1:T(8,128)}",
        "f32[32,28,28,256]{3,0,2,1:T(8,128)}",
        "f32[3,3,128,256]{3,2,1,0:T(8,128)}",
        "convolution(x, y), window={size=28x28 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
    ),
    "no product": (
        "f32[4096,512]{1,0:T(8,128)}",
        "f32[4096,512]{1,0:T(8,128)}",
        "f32[4096,512]{1,0:T(8,128)}",
        "add(x, y)",
    ),
}


def module_of(name):
    """Return a scheduled module of one instruction."""
    x, y, z, text = PRODUCTS[name]
    lines = f"  x = {x} parameter(0)\n  y = {y} parameter(1)\n  ROOT z = {z} {text}\n"
    return parse_module(SourceText("m", f"HloModule m, is_scheduled=true\n\nENTRY e {{\n{lines}}}\n"))


def stating(module, tried):
    """Return a module whose root states what was tried."""
    named = module.entry.root.attributes | {"backend_config": json.dumps(tried.fields)}
    root = structs.replace(module.entry.root, attributes=named)
    entry = structs.replace(module.entry, instructions=(*module.entry.instructions[:-1], root))
    return structs.replace(module, computations=(entry,))


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_text_that_states_what_was_tried_takes_what_was_said(name):
    """With the loops and tiles that were said."""
    module, chip = module_of(name), load_chip("v5e")
    tried = tried_tiles(module, chip, "e", "z", wanted=5)
    assert tried
    for one in tried[:5]:
        (kernel,) = lower(stating(module, one), chip).steps
        assert (kernel.tiles, alone_ps(kernel, chip)) == (one.tiles, one.alone_ps)
        assert kernel.loops == one.loops


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_best_is_near_what_no_text_states(name):
    """Whole blocks, and the rows that neighbours share where windows slide, cost a few per cent at most."""
    module, chip = module_of(name), load_chip("v5e")
    (own,) = lower(module, chip).steps
    best = tried_tiles(module, chip, "e", "z", wanted=1)[0]
    assert best.alone_ps <= 1.1 * alone_ps(own, chip)


@pytest.mark.parametrize("name", PRODUCTS)
def test_two_of_each_block_fit(name):
    """Into what a kernel may take of VMEM, also where that is a sixteenth of what it is."""
    chip = load_chip("v5e", {"vmem.scoped_bytes": 2**20})
    for one in tried_tiles(module_of(name), chip, "e", "z", wanted=3)[:3]:
        (kernel,) = lower(stating(module_of(name), one), chip).steps
        assert kernel.vmem_bytes <= chip.vmem.kernel_bytes


@pytest.mark.parametrize("name", [name for name in PRODUCTS if "dot" in PRODUCTS[name][3]])
def test_a_letter_means_one_size_everywhere(name):
    """The letters of a dot's dimensions are those of the convolution that it could be written as."""
    entry = module_of(name).entry
    labels, kinds = lettered(entry.root, entry["x"].shape, entry["y"].shape, ())
    sides = ((labels.lhs, "x"), (labels.rhs, "y"), (labels.output, "z"))
    sizes = [dict(zip(letters, entry[array].shape.dimensions, strict=True)) for letters, array in sides]
    left, right, out = sizes
    assert left.get("f", 1) == right.get("i", 1)
    assert right.get("o", 1) == out.get("f", 1)
    assert left.get("b", 1) == out.get("b", 1)
    for digit in map(str, range(len(kinds))):
        assert len({side[digit] for side in sizes if digit in side}) == 1


@pytest.mark.parametrize("name", PRODUCTS)
def test_several_cores_share_a_loop_that_has_tiles(name):
    """What is stated says which, the kernel then runs on both, and takes what was said."""
    module, chip = module_of(name), load_chip("v5p")
    best = tried_tiles(module, chip, "e", "z", wanted=1)[0]
    (kernel,) = lower(stating(module, best), chip).steps
    assert (kernel.cores, alone_ps(kernel, chip)) == (2, best.alone_ps)
    assert chosen_tiles(module, chip, {"z": "e"}) == {"z": best.fields}


def test_kernels_that_are_alike_are_searched_once_and_no_others():
    """What is chosen of all kernels of a program together is what is chosen of each by itself."""
    path = Path(__file__).parents[2] / "traces" / "unscheduled" / "resnet50_fwd_b32.hlo.txt.gz"
    module, chip = compile(path, "v5e"), load_chip("v5e")
    names = {i.name: c.name for c in running_computations(module) for i in c if i.opcode in ("fusion", "copy")}
    assert len(names) > 50
    tried = {name: tried_tiles(module, chip, computation, name, wanted=1) for name, computation in names.items()}
    assert chosen_tiles(module, chip, names) == {name: found[0].fields for name, found in tried.items() if found}


TURNED = """\
HloModule turned, is_scheduled=true

ENTRY e {
  x = bf16[2048,27,27]{2,1,0:T(8,128)(2,1)} parameter(0)
  ROOT z = bf16[2048,27,27]{0,2,1:T(8,128)(2,1)} copy(x)
}
"""


def test_what_is_turned_is_cut_where_it_is_read_in_one_piece():
    """The rows that the copy's lanes come from are read once, as the TPU compiler cuts it; else again for each tile."""
    module, chip = parse_module(SourceText("turned", TURNED)), load_chip("v5e")
    best = tried_tiles(module, chip, "e", "z", wanted=1)[0]
    (kernel,) = lower(stating(module, best), chip).steps
    assert kernel.tiles > 1
    assert kernel.hbm_bytes == sum(physical_bytes(module["e"][name].shape) for name in "xz")
