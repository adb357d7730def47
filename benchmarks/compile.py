"""Compiling: CPU time of two models, pass by pass, and how it grows with the size of a program.

    python benchmarks/compile.py [--chip v5e] [--blocks 16 64 256]

The models are ResNet-50 training and BERT base as JAX hands them on (``traces/unscheduled``). The programs of three
sizes are chains of one block, a dense layer with a normalised residual: time is proportional to a power of the number
of instructions, whose exponent the last line gives.
"""

from __future__ import annotations

import argparse
from math import log
from pathlib import Path
from time import process_time

from tpusim.ir.module import Module
from tpusim.pipeline.compile import compile, compile_program
from tpusim.pipeline.stages import load
from tpusim.source import SourceText
from tpusim.text import parse_module

_FOLDER = Path(__file__).parent.parent / "traces" / "unscheduled"
_MODELS = ("resnet50_train_b64", "bert_base_b32t128")
_HEAD = """\
HloModule chain

add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }

ENTRY chain {
  w = bf16[512,512] parameter(0)
  x0 = bf16[512,512] parameter(1)
  zero = f32[] constant(0)
"""
_BLOCK = """\
  dot{n} = bf16[512,512] dot(x{m}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  act{n} = bf16[512,512] tanh(dot{n})
  sum{n} = bf16[512,512] add(act{n}, x{m})
  wide{n} = f32[512,512] convert(sum{n})
  sq{n} = f32[512,512] multiply(wide{n}, wide{n})
  row{n} = f32[512] reduce(sq{n}, zero), dimensions={{1}}, to_apply=add
  inv{n} = f32[512] rsqrt(row{n})
  spread{n} = f32[512,512] broadcast(inv{n}), dimensions={{0}}
  out{n} = f32[512,512] multiply(wide{n}, spread{n})
  {root}x{n} = bf16[512,512] convert(out{n})
"""


def chain(blocks: int) -> Module:
    """Return a program of so many blocks, one after the other."""
    lines = [_BLOCK.format(n=n, m=n - 1, root="ROOT " if n == blocks else "") for n in range(1, blocks + 1)]
    return parse_module(SourceText("chain", _HEAD + "".join(lines) + "}\n"))


def seconds(module: Module, chip: str, *, by_pass: bool = False) -> float:
    """Return the CPU time of compiling a module, and print it, if asked for by pass; verifying is a part of it."""
    begin = process_time()
    compile(module, chip)
    took = process_time() - begin
    print(f"{module.name}: {module.instruction_count:,} instructions, {took:.2f} s CPU")
    # A second time: to count what each pass has left takes longer than some of them.
    for one in compile_program(module, chip).compilation.passes if by_pass else ():
        print(f"  {one.name:<12}{one.cpu_seconds:8.3f} s")
    return took


def main() -> None:
    """Compile the models, then the chains."""
    parser = argparse.ArgumentParser(description="Time our compiler.")
    parser.add_argument("--chip", default="v5e", help="the chip to compile for (default: v5e)")
    parser.add_argument("--blocks", type=int, nargs="+", default=[16, 64, 256], help="sizes of the chains")
    options = parser.parse_args()
    # What is loaded and compiled by Numba once is no part of it.
    seconds(chain(1), options.chip)
    for name in _MODELS:
        seconds(load(_FOLDER / f"{name}.hlo.txt.gz"), options.chip, by_pass=True)
    chains = [chain(blocks) for blocks in options.blocks]
    times = [seconds(module, options.chip) for module in chains]
    if len(chains) > 1:
        growth = log(times[-1] / times[0]) / log(chains[-1].instruction_count / chains[0].instruction_count)
        print(f"time grows with the number of instructions to the power of {growth:.2f}")


if __name__ == "__main__":
    main()
