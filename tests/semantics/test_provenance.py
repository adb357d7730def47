"""Which compiler left a text and for which chip: real programs, what the CPU backend leaves, and each sign."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpusim.hardware.load import chip_names
from tpusim.ir.module import Module
from tpusim.pipeline.chip_choice import provenance_of
from tpusim.program.provenance import Provenance
from tpusim.semantics.provenance import read_provenance
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.text.reader import read_source

TRACES = Path(__file__).parents[2] / "traces"
# By program the chip that it was compiled for, and whether its text alone tells it.
REAL = {
    "measured/add_1024x384_1024x384_f16.v4": ("v4-megacore", False),
    "tilings/fusion.232.v3": ("v3", False),
    "mlp_b1024.v5e": ("v5e", False),
    "dlrm_b2048.v5p": ("v5p", True),
    "sampler_v32000.v6e": ("v6e", False),
    "gnn_n4096.v7x": ("v7x", True),
}
TILED = "f32[16,128]{1,0:T(8,128)}"


def every_chip():
    """Return the chips that programs are compiled for: a power state has no programs of its own."""
    return {name for name in chip_names() if not name.endswith("-boosted")}


def module(shape: str = TILED, config: str = "{}", head: str = ", is_scheduled=true") -> Module:
    """Return a program of one instruction."""
    text = (
        f"HloModule m{head}\nENTRY e {{\n  p = {shape} parameter(0)\n"
        f"  ROOT c = {shape} copy(p), backend_config={config}\n}}\n"
    )
    return parse_module(SourceText("step.hlo.txt", text))


@pytest.mark.parametrize(("name", "chip", "is_told"), [(name, *facts) for name, facts in REAL.items()])
def test_real_programs_are_for_the_chip_that_they_were_compiled_for(name: str, chip: str, is_told: bool) -> None:
    """By their names, which their texts never contradict; where the text allows one chip only it needs no name."""
    program = parse_module(read_source(TRACES / f"{name}.hlo.txt.gz"))
    assert provenance_of(program).is_for(chip)
    assert read_provenance(program).chip == (chip if is_told else "")


def test_what_the_cpu_backend_leaves_is_not_a_tpu_program() -> None:
    """It says is_scheduled=true as well; JAX as the oracle."""
    jax = pytest.importorskip("jax")
    ones = jax.numpy.ones((256, 256))
    text = jax.jit(lambda x: jax.numpy.tanh(x) + 1).lower(ones).compile().as_text()
    assert "is_scheduled=true" in text
    assert read_provenance(parse_module(SourceText("step.v5e.hlo.txt", text)), "v5e") == Provenance(
        compiler="cpu", stated="v5e"
    )


def test_what_a_cpu_backend_leaves_without_a_note_is_not_a_tpu_program() -> None:
    """A sort beside a fusion of a loop has none; JAX as the oracle. No TPU is claimed, and no other processor."""
    jax = pytest.importorskip("jax")
    numpy = jax.numpy
    ones = numpy.ones((6, 4)), numpy.ones((4, 3))
    text = jax.jit(lambda x, w: (numpy.tanh(x @ w).sum(0), numpy.sort(x, 0))).lower(*ones).compile().as_text()
    assert "backend_config" not in text
    made_by = read_provenance(parse_module(SourceText("step.v5e.hlo.txt", text)), "v5e")
    assert made_by == Provenance(compiler="xla", stated="v5e")


FUSED = """HloModule m, is_scheduled=true{head}

f {{
  p = f32[16,128]{layout} parameter(0)
  ROOT n = f32[16,128]{layout} negate(p)
}}

ENTRY e {{
  x = f32[16,128]{layout} parameter(0)
  ROOT y = f32[16,128]{layout} {made}
}}
"""
OF_JAX = ", allow_spmd_sharding_propagation_to_output={true}"


@pytest.mark.parametrize(
    ("head", "layout", "made", "compiler"),
    [
        (OF_JAX, "{1,0}", "fusion(x), kind=kLoop, calls=f", "xla"),
        (OF_JAX, "{1,0:T(8,128)}", "fusion(x), kind=kLoop, calls=f", "tpu"),
        (OF_JAX, "", "fusion(x), kind=kLoop, calls=f", "another"),
        (OF_JAX, "{1,0}", "call(x), to_apply=f", "another"),
        ("", "{1,0}", "fusion(x), kind=kLoop, calls=f", "another"),
    ],
)
def test_a_text_is_xlas_where_jax_asked_for_it(head: str, layout: str, made: str, compiler: str) -> None:
    """With fusions and layouts that are not tiled; what is written by hand, or not compiled yet, lacks one of them."""
    text = FUSED.format(head=head, layout=layout, made=made)
    assert read_provenance(parse_module(SourceText("step.hlo.txt", text))).compiler == compiler


@pytest.mark.parametrize(
    ("shape", "config", "head", "compiler"),
    [
        (TILED, "{}", ", is_scheduled=true", "tpu"),
        (TILED, "{}", "", "none"),
        ("f32[16,128]{1,0}", "{}", ", is_scheduled=true", "another"),
        ("f32[16,128]{1,0}", '{"outer_dimension_partitions":["2"]}', ", is_scheduled=true", "cpu"),
        ("f32[16,128]{1,0}", '{"fusion_backend_config":{"kind":"__triton"}}', ", is_scheduled=true", "gpu"),
    ],
)
def test_layouts_tell_the_compiler(shape: str, config: str, head: str, compiler: str) -> None:
    """Only the TPU compiler tiles them; others leave notes of their own."""
    assert read_provenance(module(shape, config, head)).compiler == compiler


@pytest.mark.parametrize(
    ("shape", "config", "chips"),
    [
        (TILED, "{}", every_chip()),
        ("f32[16,128]{1,0:T(8,128)S(3)}", "{}", {"v4", "v4-megacore"}),
        ("f32[16,128]{1,0:T(8,128)S(1)}", "{}", {"v5e", "v5p", "v6e", "v7x"}),
        ("bf16[16,128]{1,0:T(16,128)(2,1)}", "{}", {"v7x"}),
        ("f32[128]{0:T(128)}", "{}", every_chip() - {"v2", "v3"}),
        ("f32[128]{0:T(256)}", "{}", every_chip()),
        ("f32[1,128]{1,0:T(1,128)}", "{}", every_chip() - {"v2", "v3"}),
        (TILED, '{"megacore_config":{"megacore_split_dim":"0"}}', {"v4-megacore", "v5p"}),
        (TILED, '{"sparse_core_config":{}}', {"v5p", "v6e", "v7x"}),
        # 20 MiB, more than the 16 of v2 to v4.
        (
            TILED,
            '{"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"20971520"}]}',
            {"v5e", "v5p", "v6e", "v7x"},
        ),
    ],
)
def test_a_sign_allows_the_chips_that_can_show_it(shape: str, config: str, chips: set[str]) -> None:
    """And excludes the others."""
    assert set(read_provenance(module(shape, config)).possible) == chips


def test_no_chip_is_claimed_that_the_text_cannot_tell() -> None:
    """With several possible it takes a name."""
    program = module("f32[16,128]{1,0:T(8,128)S(1)}")
    assert read_provenance(program).chip == ""
    assert read_provenance(program, "v6e").is_for("v6e")
    assert not read_provenance(program, "v6e").is_for("v5e")


def test_the_text_goes_before_a_name_that_it_contradicts() -> None:
    """An array in common memory is of v4, whatever the file is called."""
    found = read_provenance(module("f32[16,128]{1,0:T(8,128)S(3)}"), "v5e")
    assert not found.is_for("v5e")
    assert found.signs == ("arrays in the common memory, S(3)",)


def test_facts_beside_a_program_tell_chip_and_version(tmp_path: Path) -> None:
    """They go before the name of the file."""
    text = module().source
    assert text is not None
    (tmp_path / "step.v5e.json").write_text('{"chip": "v6e", "how": "JAX 0.10.2, libtpu 0.0.42.1"}')
    found = provenance_of(parse_module(SourceText(str(tmp_path / "step.v5e.hlo.txt"), text.text)))
    assert (found.stated, found.version) == ("v6e", "libtpu 0.0.42.1")
