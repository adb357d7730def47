"""Device groups in three notations, against NumPy's reshape and transpose."""

from __future__ import annotations

import numpy as np
import pytest

from tests.text.programs import source
from tpusim.errors import ProgramError
from tpusim.ir.attributes import ReplicaGroups
from tpusim.text.attributes.devices import take_replica_groups
from tpusim.text.lexer import Lexer


def read(text: str) -> ReplicaGroups:
    """Return the groups in a text."""
    return take_replica_groups(Lexer(source(text)))


@pytest.mark.parametrize(
    ("text", "groups", "size", "dimensions", "order"),
    [
        ("[2,4]<=[8]", 2, 4, (8,), (0,)),
        ("[2,4]<=[4,2]T(1,0)", 2, 4, (4, 2), (1, 0)),
        ("[4,6]<=[2,3,4]T(1,2,0)", 4, 6, (2, 3, 4), (1, 2, 0)),
    ],
)
def test_iota_groups_are_an_array_transposed_and_cut(
    text: str, groups: int, size: int, dimensions: tuple[int, ...], order: tuple[int, ...]
) -> None:
    """``[groups,size]<=[dimensions]T(order)`` by its definition."""
    count = groups * size
    expected = np.arange(count).reshape(dimensions).transpose(order).reshape(groups, size)
    assert read(text).groups == tuple(map(tuple, expected.tolist()))


@pytest.mark.parametrize(
    ("text", "split", "others", "grouped"),
    [
        ("mesh['a'=2,'b'=4] {'a'}", (2, 4), (1,), (0,)),
        ("mesh['a'=2,'b'=4] {'b'}", (2, 4), (0,), (1,)),
        ("mesh['a'=2,'b'=4] {'b','a'}", (2, 4), (), (1, 0)),
        ("mesh['a'=4,'b'=2] {'a':(1)2}", (2, 2, 2), (1, 2), (0,)),
        ("mesh['a'=8,'b'=2] {'a':(2)2,'b'}", (2, 2, 2, 2), (0, 2), (1, 3)),
    ],
)
def test_groups_along_axes_of_a_mesh(
    text: str, split: tuple[int, ...], others: tuple[int, ...], grouped: tuple[int, ...]
) -> None:
    """Groups run along the axes named, in their order; the other axes tell the groups apart."""
    mesh = np.arange(int(np.prod(split))).reshape(split).transpose(*others, *grouped)
    size = int(np.prod([split[axis] for axis in grouped]))
    assert read(text).groups == tuple(map(tuple, mesh.reshape(-1, size).tolist()))


def test_a_mesh_may_list_its_devices() -> None:
    """``device_ids`` says which device stands where."""
    assert read("mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'b'}").groups == ((3, 1), (2, 0))
    assert read("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}").groups == ((0, 2), (1, 3))


@pytest.mark.parametrize("text", ["{{0,1},{2,3}}", "{}", "[4,16]<=[64]", "[2,4]<=[4,2]T(1,0)", "mesh['a'=2] {'a'}"])
def test_groups_print_in_the_notation_that_they_came_in(text: str) -> None:
    """All three are canonical."""
    assert read(text).text == text


def test_ragged_groups_are_kept() -> None:
    """An all-reduce may have them."""
    assert read("{{0}, {1, 2}}").groups == ((0,), (1, 2))


@pytest.mark.parametrize(
    "text",
    [
        "[2,4]<=[9]",
        "[2,2,2]<=[8]",
        "[2,4]<=[4,2]",
        "[2,4]<=[4,2]T(1,1)",
        "[1000000,1000000]<=[1000000000000]",
        "mesh['a'=2,'a'=2] {'a'}",
        "mesh['a'=4] {'a':(1)2,'a':(1)4}",
        "mesh['a'=4] {'a':(1)3}",
        "mesh['a'=2,'b'=2], device_ids=(0,1) {'b'}",
        "maximal_mesh[device_id=0] {}",
    ],
)
def test_what_is_no_list_of_groups_is_an_error(text: str) -> None:
    """Counts that disagree, orders that are none, axes twice, and numbers that stand for too many devices."""
    with pytest.raises(ProgramError):
        read(text)


def test_lists_of_the_same_devices_share_their_numbers():
    """A program may order thousands of devices in hundreds of ways: of each list the numbers would be most."""
    one, other = (read(f"[1,4096]<=[64,64]T({order})").groups[0] for order in ("0,1", "1,0"))
    assert len({id(number) for number in (*one, *other)}) == 4096
