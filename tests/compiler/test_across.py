"""Which argument is fetched across programs. Source: 724 programs compiled ahead of time for v3 to v7x."""

from __future__ import annotations

import pytest

from tests.compiler.programs import compiled
from tpusim.compiler.place.across import argument_across_programs
from tpusim.compiler.place.lives import Lives
from tpusim.compiler.target import Target
from tpusim.draft import Draft
from tpusim.hardware.load import load_chip
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

GATHER = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,256}"
ALONG = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def fetched(body, aliases="", chip="v5e"):
    """Return the arguments that the program of a text fetches across programs."""
    entry = compiled(f"HloModule m{aliases}\nENTRY main {{{body}}}\n", chip).entry
    return [i.operands[0] for i in entry if "cross_program_prefetch_index" in i.attributes]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            f"""  x = bf16[64,256] parameter(0)  w = bf16[256,512] parameter(1)
              ROOT y = bf16[64,512] dot(x, w), {ALONG} """,
            ["w"],
            id="the largest",
        ),
        pytest.param(
            f"""  x = bf16[64,256] parameter(0)  w = s8[256,512] parameter(1)  b = bf16[512] parameter(2)
              c = bf16[256,512] convert(w)  y = bf16[64,512] dot(x, c), {ALONG}
              wide = bf16[64,512] broadcast(b), dimensions={{1}}  ROOT z = bf16[64,512] add(y, wide) """,
            ["w"],
            id="one of another type",
        ),
        pytest.param(
            f"""  x = bf16[512,512] parameter(0)  w = bf16[512,512] parameter(1)
              y = bf16[512,512] dot(x, w), {ALONG}  ROOT z = bf16[512,512] add(y, x) """,
            ["w"],
            id="none that is added as well",
        ),
        pytest.param(
            f"""  u = bf16[512,512] parameter(0)  w = bf16[512,512] parameter(1)  x = bf16[8,512] parameter(2)
              y = bf16[8,512] dot(x, w), {ALONG}
              t = bf16[8,512] reverse(y), dimensions={{0}}  ROOT z = bf16[8,512] dot(t, u), {ALONG} """,
            ["w"],
            id="of those that are as large the one read no more first",
        ),
        pytest.param(
            f"""  x = bf16[512,512] parameter(0)  w = bf16[512,512] parameter(1)
              ROOT y = bf16[512,512] dot(x, w), {ALONG} """,
            ["x"],
            id="of those the first",
        ),
        pytest.param(
            """  x = bf16[4096,256] parameter(0)  w = bf16[4,256,512] parameter(1)  s = s32[4] parameter(2)
              ROOT y = bf16[4096,512] ragged-dot(x, w, s), lhs_contracting_dims={1}, rhs_contracting_dims={1},
                lhs_ragged_dims={0}, rhs_group_dims={0} """,
            ["w"],
            id="no rows in groups",
        ),
        pytest.param(
            "  x = f32[512,512] parameter(0)  w = f32[512,512] parameter(1)  ROOT y = f32[512,512] add(x, w) ",
            [],
            id="none of what goes by element by element",
        ),
        pytest.param(
            f"""  t = bf16[4096,256] parameter(0)  i = s32[64,1] parameter(1)
              ROOT y = bf16[64,256] gather(t, i), {GATHER} """,
            ["t"],
            id="the table of a gather",
        ),
        pytest.param(
            f"""  x = bf16[64,256] parameter(0)  s = bf16[4,256,512] parameter(1)  i = s32[] parameter(2)
              zero = s32[] constant(0)
              c = bf16[1,256,512] dynamic-slice(s, i, zero, zero), dynamic_slice_sizes={{1,256,512}}
              w = bf16[256,512] reshape(c)  ROOT y = bf16[64,512] dot(x, w), {ALONG} """,
            ["x"],
            id="not a stack of which a product takes a layer",
        ),
        pytest.param(
            """  x = bf16[8,32,32,128] parameter(0)  w = bf16[3,3,1,128] parameter(1)
              ROOT y = bf16[8,32,32,128] convolution(x, w), window={size=3x3 pad=1_1x1_1},
                dim_labels=b01f_01io->b01f, feature_group_count=128 """,
            [],
            id="nothing of products channel by channel",
        ),
        pytest.param(
            """  x = bf16[1024,32,256] parameter(0)  w = bf16[256,512] parameter(1)
              t = bf16[32,1024,256] transpose(x), dimensions={1,0,2}
              ROOT y = bf16[32,1024,512] dot(t, w), lhs_contracting_dims={2}, rhs_contracting_dims={0} """,
            ["w"],
            id="not what a product turns",
        ),
    ],
)
def test_what_products_and_gathers_take_is_fetched(body, expected):
    """Where all of it is to be at hand; what is passed through element by element comes in block by block."""
    assert fetched(body) == expected


@pytest.mark.parametrize(
    ("chip", "rows", "expected"),
    [("v5e", 40_000, ["w"]), ("v5e", 60_000, []), ("v4", 32_000, ["w"]), ("v4", 33_000, []), ("v3", 512, [])],
)
def test_it_has_to_fit(chip, rows, expected):
    """80 MiB do on a v5e, of whose VMEM whole arrays may have 112, and 62 in the 64 of v4's CMEM."""
    body = f"""  x = bf16[64,{rows}] parameter(0)  w = bf16[{rows},1024] parameter(1)
      ROOT y = bf16[64,1024] dot(x, w), {ALONG} """
    assert [name for name in fetched(body, chip=chip) if name == "w"] == expected


def test_none_that_is_given_away():
    """What lies in its place at the end is not for the next run."""
    body = f"""  x = bf16[64,1024] parameter(0)  w = bf16[1024,512] parameter(1)
      y = bf16[64,512] dot(x, w), {ALONG}
      z = bf16[1024,512] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
      ROOT both = (bf16[64,512], bf16[1024,512]) tuple(y, z) """
    assert fetched(body) == ["w"]
    assert fetched(body, ", input_output_alias={ {1}: (1, {}, may-alias) }") == ["x"]


def test_what_is_given_away_for_whatever_use_is_none_either():
    """JAX says so of what it donates on a mesh."""
    body = f"""  x = bf16[64,1024] parameter(0)  w = bf16[1024,512] parameter(1)
      ROOT y = bf16[64,512] dot(x, w), {ALONG} """
    assert fetched(body, ", buffer_donor={ (1, {}) }") == ["x"]


def test_none_for_which_hand_written_kernels_leave_no_room():
    """The next largest comes in its place."""
    parameters = "x = bf16[64,30000] parameter(0)  w = bf16[30000,1024] parameter(1)"
    graph = Draft(
        parse_module(
            SourceText(
                "test",
                f"""HloModule m
ENTRY main {{
  {parameters}
  ROOT y = bf16[64,1024] dot(x, w), {ALONG}
}}
""",
            )
        )
    )
    target = Target(load_chip("v5e"))
    lives = Lives(graph, target)
    assert argument_across_programs(graph, target, lives).argument.name == "w"
    lives.held.append((0, lives.length - 1, 100 << 20))
    assert argument_across_programs(graph, target, lives).argument.name == "x"


def test_none_of_products_of_groups_where_two_cores_share_them():
    """The kernel that these have is hand-written (23 of 23 programs of ``lax.ragged_dot`` for v5p)."""
    body = """  x = bf16[4096,256] parameter(0)  w = bf16[4,256,512] parameter(1)  s = s32[4] parameter(2)
      ROOT y = bf16[4096,512] ragged-dot(x, w, s), lhs_contracting_dims={1}, rhs_contracting_dims={1},
        lhs_ragged_dims={0}, rhs_group_dims={0} """
    assert fetched(body, chip="v5p") == []
