"""Programs that say which devices of a slice they were compiled for run on these."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from msgspec import structs

from tests.cli.commands import output_of
from tests.study.cases import kernel_module
from tpusim.analysis.explained.facts import DeviceOrder
from tpusim.errors import ConfigError, ProgramError
from tpusim.hardware.load import load_chip
from tpusim.hardware.pod import make_pod, parse_topology
from tpusim.ir.module import Module, with_devices
from tpusim.pipeline.answers.explain import explain
from tpusim.pipeline.device_order import with_device_order
from tpusim.pipeline.modules import Builder
from tpusim.pipeline.stages import load, lower, simulate
from tpusim.program.stored import decode_program, encode_program
from tpusim.report.terminal.answers.explain import order_text
from tpusim.semantics.marks import DEVICE_ORDER, TOPOLOGY, with_mark

LISTED, SNAKE, SWAPPED = (0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 3, 2, 4, 5, 7, 6), (0, 4, 1, 5, 2, 6, 3, 7)


def chain(order: tuple[int, ...], topology: str = "v5e:2x4", devices: tuple[int, ...] = LISTED) -> Module:
    """Return a program in which each of some devices but the last sends four megabytes to the next one."""
    builder = Builder("chain.v5e.hlo.txt")
    pairs = tuple(pairwise(devices))
    module = with_devices(builder.build(builder.collective_permute(builder.parameter(0, "f32[1024,1024]"), pairs)), 8)
    attributes = with_mark(module.attributes, DEVICE_ORDER, ",".join(map(str, order)))
    return structs.replace(module, attributes=with_mark(attributes, TOPOLOGY, topology))


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
    plain = structs.replace(
        chain(LISTED), attributes=with_devices(chain(LISTED), 8).attributes | {"frontend_attributes": "{}"}
    )
    elsewhere, unknown = (simulate(one, topology="v5e:1x8") for one in (chain(SWAPPED), plain))
    assert elsewhere.timeline.total_ps == unknown.timeline.total_ps
    assert elsewhere.program.device_order == ()


def test_an_order_is_that_of_each_copy_with_a_slice_of_its_own():
    """Two such slices have two copies of the program, which take as long as one."""
    alone, copies = (simulate(chain(SWAPPED), topology=name) for name in ("v5e:2x4", "v5e:2x4*2"))
    assert copies.program.device_order == SWAPPED
    assert copies.timeline.total_ps == alone.timeline.total_ps


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
    with pytest.raises(
        ProgramError, match=r"each device of the module once in tpusim_device_order, found .*\[module_c3\]"
    ):
        lower(chain(order))


def test_an_order_can_be_given_from_outside(capsys, tmp_path):
    """In numbers, as `explain` prints it, for a lowered program, and on the command line: the same run as if stated."""
    expected_ps = simulate(chain(SWAPPED)).timeline.total_ps
    shown = "np.array(sorted(jax.devices(), key=lambda d: d.id)).reshape(2, 4).transpose(1, 0).ravel()"
    programs = [
        with_device_order(chain(SNAKE), order) for order in (SWAPPED, np.array(SWAPPED), "0,4,1,5,2,6,3,7", shown)
    ]
    programs.append(with_device_order(lower(chain(SNAKE)), f"np.array(sorted(jax.devices()))[{list(SWAPPED)}]"))
    assert {simulate(program).timeline.total_ps for program in programs} == {expected_ps}
    chain(SNAKE).save(tmp_path / "chain.v5e.hlo.txt")
    line = "run", str(tmp_path / "chain.v5e.hlo.txt"), "--topology", "v5e:2x4", "--device-order", shown, "--json"
    assert json.loads(output_of(capsys, *line))["time_us"] == simulate(chain(SWAPPED)).summary.time_us


def test_an_order_without_a_slice_is_of_any():
    """It is known from whoever asks for it, and not from a compiler."""
    module = chain(LISTED)
    plain = structs.replace(module, attributes=module.attributes | {"frontend_attributes": "{}"})
    program = with_device_order(plain, SWAPPED)
    assert simulate(program, topology="v5e:1x8").program.device_order == SWAPPED


@pytest.mark.parametrize(
    "order", ["0,1,1", "some", "", "reshape(2, 2).transpose(1, 1)", f"reshape({10**8}, 9).transpose(0, 1)"]
)
def test_an_order_that_is_none_is_refused(order):
    """Before anything of its size is made."""
    with pytest.raises(ConfigError, match="device order: expected"):
        with_device_order(chain(LISTED), order)


@pytest.mark.parametrize("form", [lambda module: module, lower])
@pytest.mark.parametrize(
    ("make", "order", "said"),
    [
        (lambda: chain(LISTED), "0,1", "expected the 8 devices of chain.*, found 2 devices"),
        (kernel_module, "0,1", "expected none, as m is for one device, found 2 devices"),
        (kernel_module, "hosts", "expected none, as m is for one device, found 8 devices"),
    ],
)
def test_an_order_of_more_or_fewer_devices_is_refused(form, make, order, said):
    """In the words of who gives it; one device has no order."""
    with pytest.raises(ConfigError, match=f"device order: {said}"):
        with_device_order(form(make()), order, "v5e:2x4")


@pytest.mark.parametrize(
    ("slice_", "first"),
    [
        ("v5e:4x4", (0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15)),
        ("v5e:8x8", (0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15)),
        ("v5e:2x4", LISTED),
        ("v5p:4x4x4", (0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 16, 17, 20, 21)),
        ("v5p:2x4x4", tuple(range(32))),
        ("v4:4x4x4", (0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15)),
        ("v7x:4x4x4", (0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15)),
    ],
)
def test_devices_are_listed_by_host_as_jax_does(slice_, first):
    """As ``jax.experimental.topologies`` lists their ids: two by two chips a host, both cores of a chip together."""
    topology = parse_topology(slice_)
    assert make_pod(topology, load_chip(topology.chip)).by_host[: len(first)] == first


def columns(names: tuple[int, ...] = (), every: int = 4) -> Module:
    """Return a program of sixteen devices of which every fourth add; with ``names`` these are those of a 4x4."""
    builder = Builder("columns.v5e.hlo.txt")
    groups = tuple(tuple(range(first, 16, every)) for first in range(every))
    total = builder.all_reduce(builder.parameter(0, "f32[1024,1024]"), lambda a, b: a + b, groups)
    module = with_devices(builder.build(total), 16)
    return with_device_order(module, names, "v5e:4x4") if names else module


def test_the_order_of_hosts_can_be_asked_for(capsys, tmp_path):
    """By its word it is the run with that list, for a module, a lowered program and on the command line."""
    listed = make_pod(parse_topology("4x4"), load_chip("v5e")).by_host
    expected = simulate(columns(listed)).timeline.total_ps
    programs = [with_device_order(one, "hosts") for one in (columns(), lower(columns()))]
    assert {simulate(program).timeline.total_ps for program in programs} == {expected}
    columns().save(tmp_path / "columns.v5e.hlo.txt")
    line = "run", str(tmp_path / "columns.v5e.hlo.txt"), "--topology", "4x4", "--device-order", "hosts", "--json"
    assert json.loads(output_of(capsys, *line))["time_us"] == simulate(columns(listed)).summary.time_us
    assert simulate(columns()).timeline.total_ps != expected


@pytest.mark.parametrize("said", ["ids", "np.array(sorted(jax.devices(), key=lambda d: d.id))"])
def test_the_order_of_ids_can_be_asked_for(capsys, tmp_path, said):
    """By its word, and as reports propose it: all devices of the program, for a module and a lowered program."""
    expected = simulate(chain(LISTED)).timeline.total_ps
    programs = [with_device_order(one, said) for one in (chain(SWAPPED), lower(chain(SWAPPED)))]
    assert {simulate(program).timeline.total_ps for program in programs} == {expected}
    chain(SWAPPED).save(tmp_path / "chain.v5e.hlo.txt")
    line = "run", str(tmp_path / "chain.v5e.hlo.txt"), "--topology", "v5e:2x4", "--device-order", said, "--json"
    assert json.loads(output_of(capsys, *line))["time_us"] == simulate(chain(LISTED)).summary.time_us


@pytest.mark.parametrize(
    ("order", "sizes", "axes"), [(LISTED, (2, 4), (0, 1)), (LISTED, (), ()), (SWAPPED, (2, 4), (1, 0)), (SNAKE, (), ())]
)
def test_an_order_is_taken_as_reports_write_it(order, sizes, axes):
    """Whether it is that of the ids, a transposed array or a list."""
    found = DeviceOrder(reshaped=sizes, transposed=axes, devices=order, op_ps=1, run_ps=1)
    assert lower(with_device_order(chain((7, *range(7))), order_text(found))).device_order == order


def test_an_order_that_nobody_states_is_said(capsys, tmp_path):
    """Where it matters: not where the program states one, nor where all devices meet in any order."""
    programs = columns(), columns(tuple(range(16))), columns(every=1)
    assert [simulate(one).communication.is_order_open for one in programs] == [True, False, False]
    path = tmp_path / "columns.v5e.hlo.txt"
    columns().save(path)
    for command in ("run", "scale"):
        assert "--device-order hosts" in output_of(capsys, command, str(path))
