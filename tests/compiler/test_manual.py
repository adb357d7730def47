"""Pass 0: what ``jax.shard_map`` wraps is the program of one device; the oracle is arithmetic on whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

import tpusim
from tests.compiler.programs import compiled
from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.errors import UnsupportedError
from tpusim.hardware.load import load_chip
from tpusim.ir.attributes import Raw
from tpusim.jax import lower_for
from tpusim.source import SourceText
from tpusim.text import parse_module

jax = pytest.importorskip("jax")
P = jax.sharding.PartitionSpec
MESH = jax.sharding.AbstractMesh((2, 4), ("d", "m"))
X = np.random.default_rng(3).normal(size=(8, 16)).astype("f4")
W = np.random.default_rng(4).normal(size=(16, 4)).astype("f4")


def on_mesh(function, in_specs, out_specs, **options):
    """Return a function of parts as one of whole arrays over the mesh of 2 by 4."""
    return jax.shard_map(function, mesh=MESH, in_specs=in_specs, out_specs=out_specs, check_vma=False, **options)


def whole(array, *axes):
    """Return the shape of an array, sharded along these axes of the mesh."""
    sharding = jax.sharding.NamedSharding(MESH, P(*axes))
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def parts_of(array, rows=1, columns=1):
    """Return what each of the 8 devices has, of which d counts the rows of parts and m their columns."""
    blocks = [np.split(row, columns, axis=-1) for row in np.split(array, rows)]
    return [blocks[d if rows > 1 else 0][m if columns > 1 else 0] for d in range(2) for m in range(4)]


def part_of(array, axes, device):
    """Return a device's part of an array that is cut along these axes, the first of several being the outer one."""
    at, sizes = {"d": device // 4, "m": device % 4}, {"d": 2, "m": 4}
    for dimension, names in enumerate(axes):
        for name in names or ():
            array = np.split(array, sizes[name], dimension)[at[name]]
    return array


def product(x, w):
    """Return a part of the product, and this device's place along d."""
    return jax.lax.psum(x @ w, "m"), jax.lax.axis_index("d")[None]


PRODUCT = on_mesh(product, (P("d", "m"), P("m")), (P("d"), P("d")))


def localised(function, *arguments):
    """Return what the pass leaves of a function."""
    return compile_module(lower_for(function, *arguments), Target(load_chip("v5e")), "manual")


@pytest.mark.parametrize("sharded", [True, False])
def test_each_device_computes_its_part(sharded):
    """Of a product over both axes; the arguments say how they are sharded, or the regions alone do."""
    module = localised(PRODUCT, *((whole(X, "d", "m"), whole(W, "m")) if sharded else (X, W)))
    w = [np.split(W, 4)[device % 4] for device in range(8)]
    results = tpusim.execute(module, list(map(list, zip(parts_of(X, 2, 4), w, strict=True))), precision="exact")
    assert tpusim.check(module) == []
    assert module.device_count == 8
    for device, (found, place) in enumerate(results):
        np.testing.assert_allclose(found, np.split(X @ W, 2)[device // 4], rtol=1e-5)
        assert place == device // 4


def test_a_mesh_may_stand_in_quotes():
    """XLA prints it without, and reads both."""
    plain = lower_for(PRODUCT, X, W)
    stated = str(plain.attributes["frontend_attributes"])
    mesh = stated[stated.index("{mesh") : stated.rindex("}")]
    quoted = stated.replace(mesh, '"' + mesh.replace('"', '\\"') + '"')
    module = structs.replace(plain, attributes=plain.attributes | {"frontend_attributes": Raw(quoted)})
    assert compile_module(module, Target(load_chip("v5e")), "manual").device_count == 8


def test_arguments_take_the_room_of_their_parts():
    """Not of the whole arrays: 2 by 4 floats of one, 4 by 4 of the other."""
    shapes = [parameter.shape for parameter in localised(PRODUCT, X, W).entry.parameters]
    assert [shape.dimensions for shape in shapes] == [(4, 4), (4, 4)]


def test_a_part_goes_from_one_region_to_the_next():
    """Where both shard it alike, no device needs another's."""
    halves = on_mesh(lambda x: 2 * x, P("d"), P("d"))
    again = on_mesh(lambda x: x + 1, P("d"), P("d"))
    results = tpusim.execute(localised(lambda x: again(halves(x)), X), [[part] for part in parts_of(X, 2)])
    for found, part in zip(results, parts_of(X, 2), strict=True):
        np.testing.assert_array_equal(found, 2 * part + 1)


def test_what_every_device_has_may_be_computed_outside():
    """It is the same on each."""
    norm = on_mesh(lambda x: jax.lax.psum((x * x).sum(), ("d", "m")), P("d", "m"), P())
    module = localised(lambda x: norm(x) ** 0.5, X)
    results = tpusim.execute(module, [[part] for part in parts_of(X, 2, 4)], precision="exact")
    np.testing.assert_allclose(results, [np.linalg.norm(X)] * 8, rtol=1e-6)


CONSTANTS = {
    "one number": lambda: jax.numpy.zeros((8, 16), "f4") + 3,
    "made of indices": lambda: jax.numpy.arange(8.0)[:, None] * jax.numpy.arange(16.0),
    "a table": lambda: jax.numpy.asarray(X),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("axes", [("d", "m"), (("m", "d"), None), (None, ("d", "m"))], ids=str)
def test_a_device_takes_its_part_of_a_constant_by_its_number(name, axes):
    """Along the axes in the order that the region names them."""
    add = on_mesh(lambda x, y: jax.lax.all_gather(x, ("d", "m"))[0] + y, (P(("d", "m")), P(*axes)), P(*axes))
    module = localised(lambda x: add(x, CONSTANTS[name]()), np.zeros((8, 1, 1), "f4"))
    results = tpusim.execute(module, [[np.zeros((1, 1, 1), "f4")]] * 8, precision="exact")
    assert tpusim.check(module) == []
    whole = np.asarray(CONSTANTS[name]())
    for device, found in enumerate(results):
        np.testing.assert_array_equal(np.squeeze(found, 0), part_of(whole, axes, device))


ROWS = on_mesh(lambda x: 2 * x, P("d"), P("d"))
COLUMNS = on_mesh(lambda x: 2 * x, P(None, "d"), P(None, "d"))
SHARES = on_mesh(lambda x: 2 * x, P("d"), P("d"), axis_names={"d"})


@pytest.mark.parametrize(
    ("function", "argument", "why"),
    [
        (lambda x: ROWS(x + 1), X, "a region takes it as"),
        (lambda x: ROWS(x) + x, X, "uses all of it"),
        (lambda x: ROWS(x) + 1, X, "uses all of it"),
        (lambda x: COLUMNS(ROWS(x)), X, "a region takes it as"),
        (lambda x: (ROWS(x), COLUMNS(x)), X, "a region takes it as"),
        (SHARES, X, "says nothing of the mesh's axis 'm'"),
    ],
)
def test_what_a_partitioner_would_have_to_do_is_refused(function, argument, why):
    """Where no argument says its sharding: whole arrays beside a region, from one sharding to another, open axes."""
    with pytest.raises(
        UnsupportedError, match=rf"expected a part of .*{why}.*jax\.shard_map around the whole function"
    ):
        localised(function, argument)


@pytest.mark.parametrize(("function", "axis"), [(lambda x: x + x, "d"), (ROWS, "m")], ids=["beside", "moved"])
def test_what_arguments_say_of_their_parts_is_enough(function, axis):
    """XLA partitions what stands beside regions, and moves an array from one sharding to another."""
    results = tpusim.execute(localised(function, whole(X, axis)), [[part_of(X, [axis], device)] for device in range(8)])
    for device, found in enumerate(results):
        np.testing.assert_array_equal(found, part_of(2 * X, ["d"], device))


def test_a_program_without_regions_is_left_alone():
    """For one device."""
    assert localised(lambda x: x + x, X).device_count == 1


def test_only_arguments_keep_their_shardings():
    """Of what a pass makes anew, as without dimensions of size 1, they said how another shape is cut up."""
    said = "sharding={devices=[1,8,1,1]<=[8]}"
    module = compiled(
        f"HloModule m, num_partitions=8\n\nENTRY e {{\n  a = f32[1,8,4,128] parameter(0), {said}\n"
        f"  b = f32[1,8,4,128] negate(a), {said}\n  c = f32[1,8,4,128] tanh(b), {said}\n"
        f"  d = f32[8,4,128] reshape(c)\n  ROOT r = f32[8,4,128] multiply(d, d)\n}}\n"
    )
    assert tpusim.check(module) == []
    made = (one for computation in module.computations for one in computation.instructions)
    assert [one.opcode for one in made if "sharding" in one.attributes] == ["parameter"]


def test_a_program_that_is_cut_up_already_is_left_alone():
    """Its parameters still say how the host shards them."""
    text = "HloModule m, num_partitions=8\n\nENTRY e {\n  a = f32[4] parameter(0), sharding={devices=[8]<=[8]}\n}"
    module = parse_module(SourceText("m", text))
    assert compile_module(module, Target(load_chip("v5e")), "manual").entry.root.attributes["sharding"]
