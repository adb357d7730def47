"""A program on devices in another order: every number of a device is another one."""

from __future__ import annotations

from tpusim.program.device_order import moved_to
from tpusim.program.module import Program
from tpusim.program.steps import Branch, Call, ChannelTransfer, Choice, Collective, Loop

ORDER = (2, 0, 3, 1)


def test_groups_pairs_and_choices_are_of_the_new_devices():
    """Device 0 is 2 now, 1 is 0, wherever they stand."""
    gather = Collective(name="g", opcode="all-gather", kind="all-gather", groups=((0, 1), (2, 3)))
    send = ChannelTransfer(name="s", opcode="send", is_send=True, pairs=((0, 1),))
    branch = Branch(name="b", opcode="conditional", choices=(Choice((1,), (1, 2)),), branches=((), (gather,)))
    loop = Loop(name="l", opcode="while", body=(branch,), choices=(Choice((5,), (3,)),))
    program = Program(name="p", chip="v5e", steps=(Call(name="c", opcode="call", body=(loop, send)),))
    (call,) = moved_to(program, ORDER).steps
    loop, send = call.body
    assert loop.choices == (Choice((5,), (1,)),)
    assert loop.body[0].choices == (Choice((1,), (0, 3)),)
    assert loop.body[0].branches[1][0].groups == ((2, 0), (3, 1))
    assert send.pairs == ((2, 0),)


def test_an_order_is_of_the_devices_that_a_program_calls_its_own():
    """Device 0 of this one is 2 already: in the order of the numbers it is 0."""
    gather = Collective(name="g", opcode="all-gather", kind="all-gather", groups=((2, 0), (3, 1)))
    program = moved_to(Program(name="p", chip="v5e", steps=(gather,), device_order=ORDER), range(4))
    assert program.steps[0].groups == ((0, 1), (2, 3))
    assert program.device_order == (0, 1, 2, 3)


def test_the_same_order_changes_nothing():
    """The program is equal to itself."""
    gather = Collective(name="g", opcode="all-gather", kind="all-gather", groups=((0, 1), (2, 3)))
    program = Program(name="p", chip="v5e", steps=(gather,))
    assert moved_to(program, range(4)) == program


def test_devices_beyond_those_that_a_program_counts_stay_where_they_are():
    """Groups of one that states a count of two may name four."""
    gather = Collective(name="g", opcode="all-gather", kind="all-gather", groups=((0, 1), (2, 3)))
    program = Program(name="p", chip="v5e", steps=(gather,), device_count=2)
    assert moved_to(program, (1, 0)).steps[0].groups == ((1, 0), (2, 3))
