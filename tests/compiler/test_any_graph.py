"""Kernels of graphs of any shape: none needs itself through others, and all make what the program asks for."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.compiler.programs import LESS, SUM, compiled
from tpusim.pipeline.stages import execute
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

HEAD = f"""HloModule m

{SUM}
{LESS}

ENTRY e {{
  none = f32[] constant(0)
  m0 = f32[16,16] parameter(0)
  m1 = f32[16,16] parameter(1)
  v0 = f32[16] parameter(2)
  v1 = f32[16] parameter(3)
"""

OF = {
    "f32[16,16]": [
        "add(M, M)",
        "multiply(M, M)",
        "tanh(M)",
        "transpose(M), dimensions={1,0}",
        "dot(M, M), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "broadcast(V), dimensions={0}",
        "broadcast(V), dimensions={1}",
    ],
    "f32[16]": [
        "reduce(M, none), dimensions={0}, to_apply=sum",
        "reduce(M, none), dimensions={1}, to_apply=sum",
        "add(V, V)",
        "sort(V), dimensions={0}, to_apply=less",
    ],
}
"""By shape what makes an array of matrices M and vectors V."""


def program(seed, length):
    """Return the text of a program of so many instructions whose results are what nothing uses."""
    random = Random(seed)
    made = {"f32[16,16]": ["m0", "m1"], "f32[16]": ["v0", "v1"]}
    lines, used = [], set()

    def pick(shape):
        # Rather what is new, so that graphs are deep.
        name = random.choice(made[shape] if random.random() < 0.5 else made[shape][-6:])
        used.add(name)
        return name

    for number in range(length):
        shape = random.choice(list(OF))
        call = random.choice(OF[shape])
        while "M" in call or "V" in call:
            call = call.replace("M", pick("f32[16,16]"), 1) if "M" in call else call.replace("V", pick("f32[16]"), 1)
        lines.append(f"  n{number} = {shape} {call}")
        made[shape].append(f"n{number}")
    results = [(name, shape) for shape, names in made.items() for name in names if name not in used]
    random.shuffle(results)
    shapes, names = ", ".join(shape for _, shape in results), ", ".join(name for name, _ in results)
    return HEAD + "\n".join(lines) + f"\n  ROOT out = ({shapes}) tuple({names})\n}}\n"


@pytest.mark.parametrize("seed", range(80))
def test_no_kernel_needs_itself(seed):
    """In two of these graphs kernels that were merged led to earlier ones, and the compiler ended in a fault."""
    text = program(seed, 80)
    draw = np.random.default_rng(seed).uniform
    values = [draw(-0.2, 0.2, shape).astype(np.float32) for shape in [(16, 16)] * 2 + [(16,)] * 2]
    given, made = (
        execute(module, values, precision="exact") for module in (parse_module(SourceText("t", text)), compiled(text))
    )
    for one, other in zip(given, made, strict=True):
        # Sums are made in another order, and numbers grow.
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3 * (1 + np.abs(one).max()))
