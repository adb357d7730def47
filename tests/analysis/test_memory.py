"""What is alive when, from buffers written by hand: sums over positions, peaks, holes, and what a chip has left."""

from __future__ import annotations

import pytest

from tpusim.analysis.memory import memory_profile, memory_report, memory_use
from tpusim.hardware.load import load_chip
from tpusim.program.buffers import Buffer
from tpusim.program.module import Program
from tpusim.program.steps import Kernel
from tpusim.program.work import Stream


def buffer(name: str, n_bytes: int, first: int, last: int, **fields) -> Buffer:
    """A temporary in HBM, unless told otherwise."""
    return Buffer(
        **(
            {"name": name, "n_bytes": n_bytes, "first": first, "last": last, "space": "hbm", "kind": "temporary"}
            | fields
        )
    )


PROGRAM = Program(
    name="p",
    chip="v5e",
    steps=(),
    schedule=("i0", "i1", "i2", "i3"),
    buffers=(
        buffer("x", 100, 0, 1, kind="argument"),
        buffer("y", 50, 3, 4, kind="output"),
        buffer("a", 16, 0, 1, offset_bytes=0),
        buffer("b", 8, 1, 2, offset_bytes=16, unpadded_bytes=2, shape="s"),
        buffer("c", 16, 2, 3, offset_bytes=24),
        buffer("lodger", 30, 1, 1, within="y"),
        buffer("v", 7, 1, 2, space="vmem", kind="scratch", offset_bytes=0),
    ),
    argument_bytes=100,
    output_bytes=52,
)


def test_bytes_alive_are_the_sum_over_buffers():
    """Arguments and outputs throughout, temporaries while they live, nothing for who lodges in an output."""
    profile = memory_profile(PROGRAM, "hbm")
    naive = [sum(b.n_bytes for b in PROGRAM.buffers if b.name in "abc" and b.first <= i <= b.last) for i in range(4)]
    assert profile.alive_bytes == tuple(152 + n for n in naive)
    assert (profile.held_bytes, profile.peak_bytes, profile.peak_position) == (152, 176, 1)


def test_buffers_at_a_position_are_the_largest_first():
    """Held ones belong to every position, lodgers to those at which they live."""
    profile = memory_profile(PROGRAM, "hbm")
    assert [b.name for b in profile.alive_at(1)] == ["x", "y", "lodger", "a", "b"]
    assert [b.name for b in profile.alive_at(3)] == ["x", "y", "c"]


def test_holes_are_what_the_heap_has_beyond_its_fullest():
    """The heap ends at 40; never more than 24 bytes of it are in use."""
    profile = memory_profile(PROGRAM, "hbm")
    assert (profile.heap_bytes, profile.fragmentation_bytes) == (40, 16)


def test_other_memories_hold_nothing_throughout():
    """VMEM has what lives there, and no arguments."""
    profile = memory_profile(PROGRAM, "vmem")
    assert (profile.alive_bytes, profile.held_bytes) == ((0, 7, 7, 0), 0)


def test_a_report_says_what_is_left():
    """Peak of HBM: what is held and the heap, holes included."""
    report = memory_report(PROGRAM, load_chip("v5e"))
    assert report.hbm.needed_bytes == 152 + 40
    assert report.hbm.free_bytes == 16 * 2**30 - 2**28 - 192
    assert [b.name for b in report.padded] == ["b"]
    assert [space.profile.space for space in report.spaces] == ["hbm", "vmem"]


def test_a_program_of_two_cores_has_the_vector_memory_of_one_and_the_common_one():
    """v4: 16 MiB of VMEM per core, 128 MiB of CMEM (Jouppi et al., ISCA 2023)."""
    spaces = memory_report(PROGRAM, load_chip("v4-megacore")).spaces
    assert {space.profile.space: space.capacity_bytes >> 20 for space in spaces}["vmem"] == 16
    assert {space.profile.space: space.capacity_bytes >> 20 for space in spaces}["cmem"] == 128


def test_a_program_without_buffers_has_an_empty_profile():
    """Nothing at all is no error."""
    profile = memory_profile(Program(name="p", chip="v5e", steps=()), "hbm")
    assert (profile.alive_bytes, profile.peak_bytes, profile.alive_at(0)) == ((), 0, ())


@pytest.mark.parametrize(("scoped", "fetches", "needed"), [(0, 4, 200), (0, 1, 100), (64, 4, 64)])
def test_blocks_of_kernels_written_by_hand_count(scoped, fetches, needed):
    """Two of each block that changes from tile to tile, or what the kernel states."""
    stream = Stream(operand="x", space="hbm", block_bytes=100, fetches=fetches)
    kernel = Kernel(name="k", opcode="fusion", streams=(stream,), scoped_vmem_bytes=scoped)
    assert memory_use(Program(name="p", chip="v5e", steps=(kernel,))).peak_vmem_bytes == needed


@pytest.mark.parametrize(("space", "scalar"), [("vmem", False), ("smem", False), ("hbm", True)])
def test_what_needs_no_block_takes_no_vmem(space, scalar):
    """What lies near the core is used where it is, and the scalar core has no blocks."""
    stream = Stream(operand="x", space=space, block_bytes=100, fetches=4)
    assert not Kernel(name="k", opcode="copy", streams=(stream,), scalar=scalar).vmem_bytes


def test_the_peak_is_where_something_runs():
    """Parameters have places in the schedule as well, and nothing runs there: of equal peaks that of a step counts."""
    program = Program(
        name="p",
        chip="v5e",
        steps=(Kernel(name="i2", opcode="add"),),
        schedule=("i0", "i1", "i2"),
        buffers=(buffer("a", 16, 0, 2),),
    )
    assert memory_profile(program, "hbm").peak_instruction == "i2"
