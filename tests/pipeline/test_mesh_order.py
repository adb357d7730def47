"""Programs that say which devices of a slice they were compiled for run on these."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tpusim.errors import ProgramError
from tpusim.ir.module import Module, with_devices
from tpusim.pipeline.answers.explain import explain
from tpusim.pipeline.modules import Builder
from tpusim.pipeline.stages import load, lower, simulate
from tpusim.program.stored import decode_program, encode_program
from tpusim.semantics.marks import DEVICE_ORDER, TOPOLOGY, with_mark

LISTED, SNAKE, SWAPPED = (0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 3, 2, 4, 5, 7, 6), (0, 4, 1, 5, 2, 6, 3, 7)


def chain(order: tuple[int, ...], topology: str = "v5e:2x4", devices: tuple[int, ...] = LISTED) -> Module:
    """Return a program in which each of some devices but the last sends four megabytes to the next one."""
    builder = Builder("chain.v5e.hlo.txt")
    pairs = tuple(pairwise(devices))
    module = with_devices(builder.build(builder.collective_permute(builder.parameter(0, "f32[1024,1024]"), pairs)), 8)
    attributes = with_mark(module.attributes, DEVICE_ORDER, ",".join(map(str, order)))
    return replace(module, attributes=with_mark(attributes, TOPOLOGY, topology))


def test_numbers_are_of_the_devices_that_the_mesh_has():
    """The same as if the pairs had been written for the devices of the slice; on a snake through it all are near."""
    times = [simulate(chain(order)).timeline.total_ps for order in (SNAKE, LISTED, SWAPPED)]
    assert simulate(chain(LISTED, devices=SWAPPED)).timeline.total_ps == times[2]
    assert times[0] < times[1]
    assert times[0] < times[2]


def test_the_slice_is_that_of_the_program():
    """Eight chips in a row, where another eight would be 2x4; another slice may be asked for all the same."""
    assert simulate(chain(LISTED, "v5e:1x8")).pod.sizes == (1, 8)
    assert simulate(chain(LISTED, "v5e:1x8"), topology="v5e:2x4").pod.sizes == (2, 4)


def test_an_order_is_of_one_slice():
    """On another one nobody knows it: devices are numbered as in a program that says nothing."""
    plain = replace(chain(LISTED), attributes=with_devices(chain(LISTED), 8).attributes | {"frontend_attributes": "{}"})
    elsewhere, unknown = (simulate(one, topology="v5e:1x8") for one in (chain(SWAPPED), plain))
    assert elsewhere.timeline.total_ps == unknown.timeline.total_ps
    assert elsewhere.program.device_order == ()


def test_the_order_is_saved(tmp_path):
    """With the module's text, and with the lowered program."""
    chain(SWAPPED).save(tmp_path / "chain.v5e.hlo.txt")
    program = lower(load(tmp_path / "chain.v5e.hlo.txt"))
    assert program.device_order == SWAPPED
    assert decode_program(encode_program(program), "chain.json") == program


def test_a_better_order_is_said_from_the_order_that_is():
    """A ring, of which each step is one link, is the best, and named as the whole order of a mesh."""
    facts = explain(chain(SWAPPED), "collective-permute-start").facts
    assert facts.mesh == SWAPPED
    best = facts.orders[0]
    steps = [(abs(a % 2 - b % 2), abs(a // 2 - b // 2)) for a, b in pairwise(best.devices)]
    assert [sum(links) for links in steps] == [1] * 7
    assert best.run_ps == simulate(chain(best.devices)).timeline.total_ps


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 0, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6, 7, 8)])
def test_an_order_of_other_devices_is_refused(order):
    """Each device of the module has one place."""
    with pytest.raises(ProgramError, match="expected each of 8 devices once in tpusim_device_order"):
        lower(chain(order))
