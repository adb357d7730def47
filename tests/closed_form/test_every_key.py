"""Every key of a chip file moves what is simulated, or says that only reports show it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tpusim.analysis.memory import memory_report
from tpusim.cost.models.choice import REGISTRIES
from tpusim.errors import TpusimError
from tpusim.hardware.fields import FIELDS
from tpusim.hardware.load import chip_facts, chip_names, load_chip, model_settings, read_config
from tpusim.pipeline.stages import load, simulate
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TRACES = Path(__file__).parents[2] / "traces"
FACTORS = (2, 1 / 2, 8, 1 / 64)
"""By which a number is changed, until something moves."""

FROM_NOTHING = 1e-5
"""What is given instead of a latency or a cost of nothing; costs in cycles and bytes are given a million times that."""

NUMBERS = [key for key, field in FIELDS.items() if field.kind in (int, float, bool)]


class Case(NamedTuple):
    """A program with its chip and slice, and what of the chip is another one."""

    name: str
    chip: str
    topology: str | None = None
    given: tuple[tuple[str, float | str], ...] = ()


def text_of(*lines: str, others: str = "") -> str:
    """Return a scheduled module with these lines in its entry computation."""
    body = "\n  ".join(lines)
    return f"HloModule m, is_scheduled=true\n\n{others}\nENTRY %main {{\n  {body}\n}}\n"


def product_text(kind: str, result: str, depth: int = 1024) -> str:
    """Return a product of elements of a type, all of it in VMEM."""
    layout = "{1,0:T(8,128)S(1)}"
    return text_of(
        f"%x = {kind}[1024,{depth}]{layout} parameter(0)",
        f"%w = {kind}[{depth},1024]{layout} parameter(1)",
        f"ROOT %y = {result}[1024,1024]{layout} convolution(%x, %w), dim_labels=bf_io->bf",
    )


def exchange_text(devices: int) -> str:
    """Return an all-to-all of a few devices, 4 MiB each."""
    group = ",".join(map(str, range(devices)))
    shape = "f32[1024,1024]{1,0:T(8,128)}"
    all_to_all = f"all-to-all(%x), replica_groups={{{{{group}}}}}, dimensions={{0}}"
    return text_of(f"%x = {shape} parameter(0)", f"ROOT %y = {shape} {all_to_all}")


VMEM = "f32[1024,1024]{1,0:T(8,128)S(1)}"
TEXTS = {
    "copy in VMEM": text_of(
        f"%x = {VMEM} parameter(0)",
        f"%s = ({VMEM}, {VMEM}, u32[]{{:S(2)}}) copy-start(%x)",
        f"ROOT %y = {VMEM} copy-done(%s)",
    ),
    "tanh": text_of(f"%x = {VMEM} parameter(0)", f"ROOT %y = {VMEM} tanh(%x)"),
    "shallow product": product_text("bf16", "f32", 8),
    "deep product": product_text("bf16", "f32", 4096),
    "a row from a front end": (
        "HloModule m\n\nENTRY e {\n  x = f32[1,1000000] parameter(0)\n  ROOT y = f32[1,1000000] tanh(x)\n}\n"
    ),
    "exchange of 2": exchange_text(2),
    "exchange of 128": exchange_text(128),
}
CASES = [
    Case("copy in VMEM", "v5e"),
    Case("tanh", "v5e", None, (("vpu.alu_slots", 16), ("vpu.store_slots", 16))),
    Case("exchange of 2", "v7x"),
    Case("measured/selu_8x40x16_f16.v4", "v4-megacore"),
    Case("measured/matmul_2048x4096_4096x1024_f16.v4", "v4"),
    Case("sort_kv_1m.v5e", "v5e"),
    Case("memory/embed.v5p", "v5p"),
    Case("shallow product", "v5e"),
    Case("a row from a front end", "v5e"),
    Case("host/parameter_offload.v5e", "v5e", "v5e:2x2"),
    Case("lstm_b64t128.v5e", "v5e"),
    Case("exchange of 128", "v4", "v4:4x4x8"),
    Case("deep product", "v5e"),
    Case("dlrm_b2048.v5p", "v5p"),
    Case("linalg_512.v7x", "v7x"),
    Case("memory/fsdp.v5e_2x4", "v5e"),
    Case("memory/fsdp.v5e_2x4", "v5e", "v5e:2x2*2"),
    Case("sharded/mlp_fsdp_train_v5e", "v5e", "v5e:2x4"),
]
"""The quick ones first: most keys move one of them."""


@cache
def module_of(name: str):
    """Return a module of ours by its name, or of a file."""
    if name in TEXTS:
        return parse_module(SourceText("m.hlo", TEXTS[name]))
    return load(TRACES / f"{name}.hlo.txt.gz")


def figures_of(case: Case, over: dict | None = None):
    """Return the time and the energy of a case, and what its memory report says of the chip's memories."""
    overrides = dict(case.given) | (over or {})
    result = simulate(module_of(case.name), case.chip, topology=case.topology, overrides=overrides)
    spaces = memory_report(result.program, result.chip).spaces
    return (
        result.timeline.total_ps,
        result.energy.total_fj,
        [(space.capacity_bytes, space.needed_bytes) for space in spaces],
    )


figures_before = cache(figures_of)


def changed_values(key: str, value):
    """Yield other values of a number: multiples of it in its own type, or something where it is nothing."""
    if isinstance(value, bool):
        yield not value
    elif not value:
        yield FROM_NOTHING if key.endswith("_seconds") else FROM_NOTHING * 1e6
    else:
        yield from (max(1, int(value * by)) if isinstance(value, int) else value * by for by in FACTORS)


def moves(case: Case, key: str) -> bool:
    """Return whether a case is simulated otherwise with another value of a key."""
    facts = {fact.key: fact.value for fact in chip_facts(case.chip, dict(case.given))}
    return key in facts and is_moved(case, key, facts[key])


def is_moved(case: Case, key: str, stated: object) -> bool:
    """Return whether a case is simulated otherwise with other values than the stated; one that is refused says nothing.

    Such as a memory that would do nothing but refresh.
    """
    for value in changed_values(key, stated):
        try:
            if figures_of(case, {key: value}) != figures_before(case):
                return True
        except TpusimError:
            continue
    return False


@pytest.mark.slow
@pytest.mark.parametrize("key", NUMBERS)
def test_a_key_moves_what_is_simulated_or_says_that_it_does_not(key):
    """The mark is right from both sides."""
    assert any(moves(case, key) for case in CASES) != FIELDS[key].is_report_only


@pytest.mark.slow
@pytest.mark.parametrize("chip_name", chip_names())
def test_each_rate_of_a_type_moves_a_product_of_it(chip_name):
    """Of 1024 x 1024 x 1024 in VMEM, so that the arrays decide."""
    for name in load_chip(chip_name).mxu.rate_by_type:
        result = "s32" if name[0] in "su" else "f32"
        TEXTS[f"product of {name}"] = product_text(name, result)
        assert moves(Case(f"product of {name}", chip_name), f"mxu.rate_by_type.{name}"), name


@pytest.mark.slow
@pytest.mark.parametrize("key", ["vector_ops.unpack.f16.vector", "vector_ops.pack.f16.vector"])
def test_costs_that_a_chip_has_of_its_own_move_its_programs(key):
    """v4's of f16."""
    assert moves(Case("measured/selu_8x40x16_f16.v4", "v4-megacore"), key)


MODELS = {
    registry.key: name
    for registry in REGISTRIES
    for name in registry.names
    if name not in ("ramulator", getattr(getattr(load_chip("v5e"), registry.section), registry.key.split(".")[1]))
}
"""The keys that choose a model, and of each a name that is not the chip's."""

SETTINGS = [
    (f"{section}.model", model, f"{section}.settings.{name}")
    for section, models in read_config("models.toml").items()
    for model, settings in models.items()
    for name in settings
    if model != "ramulator"
]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "model"), MODELS.items(), ids=str)
def test_the_choice_of_a_model_moves_what_is_simulated(key, model):
    """Of one that ships."""
    assert any(figures_of(case, {key: model}) != figures_before(case) for case in CASES)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "model", "setting"), SETTINGS, ids=str)
def test_a_setting_moves_what_its_model_is_for(key, model, setting):
    """By the same factors as the chip's own figures."""
    value = model_settings(*key.split(".")[:1], model)[setting.rpartition(".")[2]]
    cases = (case._replace(given=(*case.given, (key, model))) for case in CASES)
    assert any(is_moved(case, setting, value) for case in cases)


@pytest.mark.slow
@pytest.mark.parametrize(
    "over",
    [
        {"ici.links_down": "0:+0"},
        {"ici.link_factors.0:+0": 0.5},
        {"devices.1.clock": 0.5},
        {"devices.1.hbm": 0.5},
    ],
    ids=str,
)
def test_what_is_of_one_link_or_device_moves_a_run_of_many(over):
    """A figure that the chips' own files leave out."""
    case = Case("memory/fsdp.v5e_2x4", "v5e", "v5e:2x4")
    assert figures_of(case, over) != figures_before(case)
