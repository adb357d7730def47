"""Decompositions and solves of matrices: steps that wait for each other, as many as the algorithm has."""

from __future__ import annotations

import pytest

from tests.lowering.hlo import kernel_named, lower_text
from tpusim.cost.tile import alone_ps, kernel_time
from tpusim.hardware.load import load_chip
from tpusim.ir.custom_calls import REGISTERED, CustomCall
from tpusim.lowering.kernels.decompositions import SWEEPS
from tpusim.program.work import Work

CHIP = load_chip("v5e")
TILES = ["", "{0:T(128)}", "{1,0:T(8,128)}", "{2,1,0:T(8,128)}"]


def decomposed(target, m, n, batch=(), chip=CHIP):
    """Return the program with one call or operation on matrices of so many rows and columns, in VMEM."""
    sizes = ",".join(map(str, (*batch, m, n)))
    array = f"f32[{sizes}]{TILES[len(batch) + 2].replace('}', 'S(1)}')}"
    least = ",".join(map(str, (*batch, min(m, n))))
    vector = f"[{least}]{TILES[len(batch) + 1]}"
    result = {
        "LuDecomposition": f"({array}, s32{vector})",
        "Qr": f"({array}, f32{vector})",
        "Eigh": f"({array}, f32[{n}]{{0:T(128)}})",
        "EighTpu": "(" + ", ".join([f"f32[{n}]{{0:T(128)}}"] * 2 + [array] * 4) + ")",
    }.get(target, array)
    operands = ", ".join(["%a"] * {"EighTpu": 4, "triangular-solve": 2}.get(target, 1))
    call = f'custom-call({operands}), custom_call_target="{target}"'
    if target == "cholesky":
        call = "cholesky(%a), lower=true"
    if target == "triangular-solve":
        call = f"triangular-solve({operands}), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"
    if target == "ProductOfElementaryHouseholderReflectors":
        call = call.replace("%a", "%a, %scales")
    given = f"%a = {array} parameter(0)\n%scales = f32{vector} parameter(1)"
    return lower_text(f"{given}\nROOT %y = {result} {call}", chip=chip)


def kernel_of(*arguments, **options):
    """Return the kernel of ``decomposed``."""
    return kernel_named(decomposed(*arguments, **options), "y")


PIVOTS = "LuDecomposition LuDecompositionBlock LuRealDecompositionBlock LuComplexDecompositionBlock Qr".split()
PIVOTS += ["QrDecompositionBlock", "Cholesky", "cholesky", "Eigh", "EighTpu"]
TRIANGLES = ["InvertDiagBlocksLowerTriangular", "InvertDiagBlocksUpperTriangular", "CompactWyHelper"]
TRIANGLES += ["triangular-solve", "ProductOfElementaryHouseholderReflectors"]


@pytest.mark.parametrize("target", PIVOTS)
def test_a_step_waits_for_a_number_to_cross_the_lanes(target):
    """Each of 64 columns at least for twice the way through the cross-lane unit, which small matrices leave idle."""
    cycles = alone_ps(kernel_of(target, 64, 64), CHIP) * CHIP.clock_hz / 1e12
    assert cycles > 63 * 2 * CHIP.vector_ops.latency["xlu"]


@pytest.mark.parametrize("target", PIVOTS + TRIANGLES)
def test_operations_that_wait_bound_a_small_decomposition(target):
    """Of one register; other units have little to do."""
    assert max((held := kernel_time(kernel_of(target, 8, 8), CHIP).held), key=lambda name: held[name]) == "chain"


@pytest.mark.parametrize("target", TRIANGLES)
def test_what_is_solved_with_a_triangle_waits_for_no_lane(target):
    """The numbers on the diagonal are known from the start: a step takes fewer cycles than the way across."""
    (part,) = kernel_of(target, 64, 64).parts
    assert 64 < part.depth_cycles < 64 * CHIP.vector_ops.latency["xlu"]


@pytest.mark.parametrize("target", ["Cholesky", "LuDecomposition", "Qr", "CompactWyHelper"])
def test_matrices_of_a_batch_wait_side_by_side(target):
    """Eight times the work, in the steps of one."""
    one, eight = kernel_of(target, 64, 64), kernel_of(target, 64, 64, batch=(8,))
    assert eight.parts[0].depth_cycles == one.parts[0].depth_cycles
    assert eight.work.ops["store"] * eight.tiles == pytest.approx(8 * one.work.ops["store"])


@pytest.mark.parametrize(
    ("target", "m", "n", "flops"),
    [
        ("cholesky", 96, 96, 96**3 / 3),
        ("Cholesky", 96, 96, 96**3 / 3),
        ("InvertDiagBlocksLowerTriangular", 96, 96, 96**3 / 3),
        ("triangular-solve", 96, 96, 96**3),
        ("LuDecomposition", 96, 96, 2 * 96**3 / 3),
        ("LuDecomposition", 192, 96, 192 * 96**2 - 96**3 / 3),
        ("LuDecomposition", 96, 192, 192 * 96**2 - 96**3 / 3),
        ("Qr", 192, 96, 2 * 192 * 96**2 - 2 * 96**3 / 3),
        # A rotation of a pair of rows is two products and a sum an element: twice in the matrix, once in the vectors.
        ("Eigh", 96, 96, SWEEPS * 95 * 9 * 96**2),
        ("EighTpu", 48, 48, SWEEPS * 95 * 9 * 96**2),
    ],
)
def test_operations_are_those_of_the_algorithm(target, m, n, flops):
    """To the leading order: G. Golub and C. Van Loan, Matrix Computations."""
    assert kernel_of(target, m, n).flops == pytest.approx(flops)


@pytest.mark.parametrize(("target", "n"), [("Eigh", 128), ("EighTpu", 64)])
def test_that_sweeps_depend_on_the_values_is_said(target, n):
    """Whoever has other matrices can scale the time."""
    (estimate,) = decomposed(target, n, n).unsupported
    assert f"{SWEEPS} times" in estimate.how


def test_a_matrix_and_its_quadrants_take_equally_long():
    """The compiler cuts it before it calls for the same rounds."""
    whole, cut = kernel_of("Eigh", 128, 128), kernel_of("EighTpu", 64, 64)
    assert (whole.parts[0].depth_cycles, whole.flops) == (cut.parts[0].depth_cycles, cut.flops)
    assert whole.work.ops["xlu"] == cut.work.ops["xlu"]


def test_tall_panels_keep_their_rows():
    """Half of a square is left on the mean of all steps, seven eighths of four squares on each other."""
    square, tall = (kernel_of("LuRealDecompositionBlock", rows, 128).work.ops["vector"] for rows in (128, 512))
    assert tall == pytest.approx(square * 4 * 7 / 4)


@pytest.mark.parametrize("target", ["cholesky", "LuDecomposition"])
def test_a_decomposition_of_nothing_takes_no_steps(target):
    """A batch of no rows and no columns is no error."""
    assert not kernel_of(target, 0, 0, batch=(2,)).parts


@pytest.mark.parametrize("cost", [None, lambda call, chip: Work(ops={"vector": 4096.0})])
def test_a_call_of_a_users_own_takes_what_the_user_says(monkeypatch, cost):
    """Whatever the compiler's of that name does, and whatever it is given."""
    monkeypatch.setitem(REGISTERED, "Qr", CustomCall(cost=cost))
    program = lower_text(
        '%a = f32[8]{0:T(128)} parameter(0)\nROOT %y = f32[8]{0:T(128)} custom-call(%a), custom_call_target="Qr"'
    )
    kernel = kernel_named(program, "y")
    assert (kernel.parts, kernel.work.ops.get("vector")) == ((), 4096.0 if cost else None)
