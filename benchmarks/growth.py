"""How the time of ``tpusim`` grows with its programs: ``python -m benchmarks.growth [KIND ...] [--sizes N,N,N]``.

Every kind of program comes in three sizes. Each goes through load, check, lower, simulate and report in a process of
its own. Printed are CPU seconds and the peak of memory for the largest, and the exponents of CPU time over the sizes,
of every stage and of all.
"""

from __future__ import annotations

import argparse
import io
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.console import Console

from tpusim.hardware.load import load_chip
from tpusim.lowering.module import lower_module
from tpusim.machine.run import simulate_pod
from tpusim.pipeline.result import Result
from tpusim.report.terminal.run import render_run
from tpusim.semantics.verify.module import verify_module
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

_ARRAY = "f32[8,128]{1,0:T(8,128)}"
_COUNT = "s32[]{:T(128)}"
_HOME = f"{_ARRAY[:-1]}S(1)}}"
_SUM = "\nsum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
_LEAF = f"\nc_0 {{\n  x = {_ARRAY} parameter(0)\n  ROOT y = {_ARRAY} add(x, x)\n}}\n"


def _module(body: Iterator[str] | list[str], before: str = "", header: str = "", result: str = _ARRAY) -> str:
    """Return a scheduled module whose entry has one parameter, ``p``, and the given instructions."""
    lines = "\n  ".join((f"p = {_ARRAY} parameter(0)", *body))
    head = f"HloModule growth, is_scheduled=true{header}\n"
    return f"{head}{before}\nENTRY entry (p: f32[8,128]) -> {result} {{\n  {lines}\n}}\n"


def chain(count: int) -> str:
    """Return ``count`` fusions, each of the one before."""
    bodies = (
        f"\nb_{n} {{\n  x_{n} = {_ARRAY} parameter(0)\n  ROOT y_{n} = {_ARRAY} add(x_{n}, x_{n})\n}}\n"
        for n in range(count)
    )
    fusions = [f"f_{n} = {_ARRAY} fusion({_before('f', n)}), kind=kLoop, calls=b_{n}" for n in range(count)]
    return _module([*fusions[:-1], f"ROOT {fusions[-1]}"], "".join(bodies))


def _before(name: str, number: int) -> str:
    """Return what comes before instruction ``number`` of a chain."""
    return f"{name}_{number - 1}" if number else "p"


def copies(count: int) -> str:
    """Return ``count`` copies from HBM to VMEM that are under way at the same time."""
    starts = [f"s_{n} = ({_HOME}, {_ARRAY}, u32[]) copy-start(p)" for n in range(count)]
    ends = [f"d_{n} = {_HOME} copy-done(s_{n})" for n in range(count)]
    return _module([*starts, *ends, f"ROOT r = {_ARRAY} add(d_0, d_{count - 1})"])


def buffers(count: int) -> str:
    """Return ``count`` temporaries of HBM that are all alive at the same time, of many sizes and ends."""
    lines = [
        f"b_{n} = f32[{8 * (1 + n * 37 % 61)},128]{{1,0:T(8,128)}} broadcast(p0), dimensions={{}}" for n in range(count)
    ]
    uses = [
        f"u_{n} = f32[]{{:T(128)}} reduce(b_{n * 7919 % count}, p0), dimensions={{0,1}}, to_apply=sum"
        for n in range(count)
    ]
    constant = "p0 = f32[]{:T(128)} constant(1)"
    return _module([constant, *lines, *uses, f"ROOT r = {_ARRAY} add(p, p)"], _SUM)


def outputs(count: int) -> str:
    """Return ``count`` outputs, each made of a temporary, which looks for room in those that are not there yet."""
    lines = (f"t_{n} = {_ARRAY} negate(p)\n  o_{n} = {_ARRAY} multiply(t_{n}, t_{n})" for n in range(count))
    result = f"({', '.join([_ARRAY] * count)})"
    root = f"ROOT r = {result} tuple({', '.join(f'o_{n}' for n in range(count))})"
    return _module([*lines, root], result=result)


def updates(count: int) -> str:
    """Return an asynchronous operation that ``count`` updates hand on, one to the next, before its end."""
    state = f"(({_ARRAY}), {_ARRAY}, u32[]{{:T(128)}})"
    begin = f"a_0 = {state} async-start(p), calls=c_0"
    handed_on = (f"a_{n} = {state} async-update(a_{n - 1})" for n in range(1, count + 1))
    return _module([begin, *handed_on, f"ROOT d = {_ARRAY} async-done(a_{count})"], _LEAF)


def joins(count: int) -> str:
    """Return ``count`` equal arrays, joined by one instruction; a compiler makes them once."""
    whole = f"f32[{8 * count},128]{{1,0:T(8,128)}}"
    lines = (f"x_{n} = {_ARRAY} negate(p)" for n in range(count))
    joined = f"ROOT r = {whole} concatenate({', '.join(f'x_{n}' for n in range(count))}), dimensions={{0}}"
    return _module([*lines, joined], result=whole)


def carried(count: int) -> str:
    """Return a loop that carries ``count`` arrays, each added to the sum of those before it."""
    state = f"({', '.join([_COUNT, *[_ARRAY] * count])})"
    given = (f"g_{n} = {_ARRAY} get-tuple-element(q), index={n + 1}" for n in range(count))
    sums = (f"s_{n} = {_ARRAY} add(g_{n}, {f's_{n - 1}' if n else 'g_0'})" for n in range(count))
    counter = f"q = {state} parameter(0)\n  i = {_COUNT} get-tuple-element(q), index=0\n  e = {_COUNT} constant(1)\n  "
    body = "\n  ".join((*given, *sums, f"j = {_COUNT} add(i, e)"))
    made = ", ".join(f"s_{n}" for n in range(count))
    less = "ROOT l = pred[]{:T(512)} compare(i, n), direction=LT"
    before = (
        f"\nless {{\n  {counter}n = {_COUNT} constant(9)\n  {less}\n}}\n"
        f"\nbody {{\n  {counter}{body}\n  ROOT r = {state} tuple(j, {made})\n}}\n"
    )
    begin = f"z = {_COUNT} constant(0)", f"t = {state} tuple(z, {', '.join(['p'] * count)})"
    loop = f"w = {state} while(t), condition=less, body=body"
    return _module([*begin, loop, f"ROOT r = {_ARRAY} get-tuple-element(w), index={count}"], before)


def calls(levels: int) -> str:
    """Return a call graph of ``levels`` computations, each of which calls the next twice."""
    each = (
        f"\nc_{n} {{\n  x = {_ARRAY} parameter(0)\n  a = {_ARRAY} call(x), to_apply=c_{n - 1}\n"
        f"  ROOT b = {_ARRAY} call(a), to_apply=c_{n - 1}\n}}\n"
        for n in range(1, levels)
    )
    return _module([f"ROOT r = {_ARRAY} call(p), to_apply=c_{levels - 1}"], _LEAF + "".join(each))


def ladder(levels: int) -> str:
    """Return the same with an operation of its own in each."""
    each = (
        f"\nc_{n} {{\n  x = {_ARRAY} parameter(0)\n  a = {_ARRAY} call(x), to_apply=c_{n - 1}\n"
        f"  m = {_ARRAY} multiply(a, x)\n  ROOT b = {_ARRAY} call(m), to_apply=c_{n - 1}\n}}\n"
        for n in range(1, levels)
    )
    return _module([f"ROOT r = {_ARRAY} call(p), to_apply=c_{levels - 1}"], _LEAF + "".join(each))


def branches(levels: int) -> str:
    """Return ``levels`` computations, each of which has a conditional between the two before it."""
    each = (
        f"\nc_{n} {{\n  x = {_ARRAY} parameter(0)\n  m = {_ARRAY} multiply(x, x)\n  c = {_COUNT} constant({n % 2})\n"
        f"  ROOT a = {_ARRAY} conditional(c, m, m), branch_computations={{c_{n - 1}, c_{max(n - 2, 0)}}}\n}}\n"
        for n in range(1, levels)
    )
    return _module([f"ROOT r = {_ARRAY} call(p), to_apply=c_{levels - 1}"], _LEAF + "".join(each))


def loops(depth: int) -> str:
    """Return loops of two trips ``depth`` deep, each with an operation before the next."""
    bodies = "".join(_body(n, "multiply(y, y)") for n in range(depth))
    return _module([f"{_loop('p', depth)}  ROOT r = {_ARRAY} add(o, o)".strip()], _less(2) + bodies)


def _body(depth: int, made: str) -> str:
    """Return the body of a loop that makes the next array of ``y`` and goes through a loop so deep with it."""
    carried = f"({_COUNT}, {_ARRAY})"
    return (
        f"\nb_{depth} {{\n  q = {carried} parameter(0)\n  i = {_COUNT} get-tuple-element(q), index=0\n"
        f"  y = {_ARRAY} get-tuple-element(q), index=1\n  e = {_COUNT} constant(1)\n  j = {_COUNT} add(i, e)\n"
        f"  m = {_ARRAY} {made}\n{_loop('m', depth)}  ROOT r = {carried} tuple(j, {'o' if depth else 'm'})\n}}\n"
    )


def _less(trips: int | str) -> str:
    """Return the condition of a loop of so many trips, or of those that given lines make, as ``n``."""
    made = trips if isinstance(trips, str) else f"  n = {_COUNT} constant({trips})\n"
    return (
        f"\nless {{\n  q = ({_COUNT}, {_ARRAY}) parameter(0)\n  i = {_COUNT} get-tuple-element(q), index=0\n"
        f"{made}  ROOT l = pred[]{{:T(512)}} compare(i, n), direction=LT\n}}\n"
    )


def _loop(start: str, depth: int) -> str:
    """Return the instructions of a loop over the body so deep, from an array on; nothing below the innermost."""
    if not depth:
        return ""
    return (
        f"  z = {_COUNT} constant(0)\n  t = ({_COUNT}, {_ARRAY}) tuple(z, {start})\n"
        f"  w = ({_COUNT}, {_ARRAY}) while(t), condition=less, body=b_{depth - 1}\n"
        f"  o = {_ARRAY} get-tuple-element(w), index=1\n"
    )


def nest(depth: int) -> str:
    """Return calls ``depth`` deep, one within the other."""
    each = (
        f"\nc_{n} {{\n  x = {_ARRAY} parameter(0)\n  ROOT a = {_ARRAY} call(x), to_apply=c_{n - 1}\n}}\n"
        for n in range(1, depth)
    )
    return _module([f"ROOT r = {_ARRAY} call(p), to_apply=c_{depth - 1}"], _LEAF + "".join(each))


def tuples(depth: int) -> str:
    """Return a tuple in a tuple, ``depth`` deep, and its innermost element."""
    shapes = [_ARRAY]
    for _ in range(depth):
        shapes.append(f"({shapes[-1]})")
    made = (f"t_{n} = {shapes[n + 1]} tuple({_before('t', n)})" for n in range(depth))
    taken = (
        f"{'ROOT ' if n == depth - 1 else ''}g_{n} = {shapes[depth - 1 - n]} "
        f"get-tuple-element({f'g_{n - 1}' if n else f't_{depth - 1}'}), index=0"
        for n in range(depth)
    )
    return _module([*made, *taken])


def lines(devices: int) -> str:
    """Return a loop in which each device hands on to the next, as pipelines do: none of them goes like another."""
    pairs = ",".join(f"{{{n},{n + 1}}}" for n in range(devices - 1))
    body = _body(0, f"collective-permute(y), channel_id=1, source_target_pairs={{{pairs}}}")
    header = f", num_partitions={devices}"
    return _module([f"{_loop('p', 1)}  ROOT r = {_ARRAY} add(o, o)".strip()], _less(1000) + body, header)


def uneven(devices: int) -> str:
    """Return a loop that each device goes through as often as its number says, and a sum of all devices after it."""
    count = f"  d = u32[] partition-id()\n  n = {_COUNT} convert(d)\n"
    total = f"ROOT r = {_ARRAY} all-reduce(o), channel_id=1, replica_groups={{}}, to_apply=sum"
    before = _SUM + _less(count) + _body(0, "multiply(y, y)")
    return _module([f"{_loop('p', 1)}  {total}".strip()], before, f", num_partitions={devices}")


def permutes(devices: int) -> str:
    """Return a permute among a power of two of devices that follows no pattern of the slice."""
    pairs = ",".join(f"{{{n},{n * 7919 % devices}}}" for n in range(devices))
    body = [f"ROOT r = {_ARRAY} collective-permute(p), channel_id=1, source_target_pairs={{{pairs}}}"]
    return _module(body, header=f", num_partitions={devices}")


def gathers(count: int) -> str:
    """Return ``count`` products of what was gathered of earlier ones, and sums of each over devices, added up."""
    half = "f32[4,128]{1,0:T(4,128)}"
    groups, terms = "replica_groups={{0,1}}", "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    lines = [
        "z = f32[] constant(0)",
        "w = f32[128,8]{1,0:T(8,128)} broadcast(z), dimensions={}",
        f"g_0 = {_ARRAY} negate(p)",
    ]
    for n in range(1, count + 1):
        lines += [
            f"h_{n} = {half} slice(g_{max(0, n - 3)}), slice={{[0:4], [0:128]}}",
            f"a_{n} = {_ARRAY} all-gather(h_{n}), {groups}, dimensions={{0}}",
            f"d_{n} = f32[8,8]{{1,0:T(8,128)}} dot(a_{n}, g_{n - 1}), {terms}",
            f"e_{n} = {_ARRAY} dot(d_{n}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
            f"s_{n} = {_ARRAY} all-reduce(e_{n}), {groups}, to_apply=sum",
            f"g_{n} = {_ARRAY} add(s_{n}, {f's_{n - 1}' if n > 1 else 'g_0'})",
        ]
    return _module([*lines, f"ROOT r = {_ARRAY} negate(g_{count})"], _SUM, ", replica_count=2")


def channels(devices: int) -> str:
    """Return a message from one partition to the other, in each of half as many replicas."""
    return _module(
        ["k = token[] after-all()", *_MESSAGE, f"ROOT r = {_ARRAY} get-tuple-element(vd), index=0"],
        header=f", num_partitions=2, replica_count={devices // 2}",
    )


_PAIR = 'channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}'
_MESSAGE = (
    f"v = ({_ARRAY}, u32[]{{:S(2)}}, token[]) recv(k), {_PAIR}",
    f"s = ({_ARRAY}, u32[]{{:S(2)}}, token[]) send(p, k), {_PAIR}",
    "sd = token[] send-done(s), channel_id=1",
    f"vd = ({_ARRAY}, token[]) recv-done(v), channel_id=1",
)


def fed(devices: int) -> str:
    """Return the same messages, with what the host has for each device before and a sum of all devices after."""
    body = [
        "k = token[] after-all()",
        f"i = ({_ARRAY}, token[]) infeed(k)",
        *_MESSAGE,
        f"g = {_ARRAY} get-tuple-element(vd), index=0",
        f"ROOT r = {_ARRAY} all-reduce(g), channel_id=2, replica_groups=[1,{devices}]<=[{devices}], "
        "use_global_device_ids=true, to_apply=sum",
    ]
    return _module(body, _SUM, header=f", num_partitions=2, replica_count={devices // 2}")


def reduces(devices: int) -> str:
    """Return an all-reduce among so many devices."""
    body = [
        f"ROOT r = {_ARRAY} all-reduce(p), channel_id=1, replica_groups=[1,{devices}]<=[{devices}], "
        "use_global_device_ids=true, to_apply=sum"
    ]
    return _module(body, _SUM, header=f", num_partitions={devices}")


class Kind(NamedTuple):
    """A kind of program: its text by size, three sizes, and the chip that it is for."""

    text: Callable[[int], str]
    sizes: tuple[int, ...]
    chip: str = "v5e"


PROGRAMS = {
    "chain": Kind(chain, (5_000, 20_000, 80_000)),
    "copies": Kind(copies, (1_000, 4_000, 16_000)),
    "buffers": Kind(buffers, (1_000, 4_000, 16_000)),
    "outputs": Kind(outputs, (1_000, 4_000, 16_000)),
    "updates": Kind(updates, (1_000, 4_000, 16_000)),
    "joins": Kind(joins, (1_000, 4_000, 16_000)),
    "carried": Kind(carried, (1_000, 2_000, 4_000)),
    "calls": Kind(calls, (150, 300, 600)),
    "ladder": Kind(ladder, (150, 300, 600)),
    "branches": Kind(branches, (150, 300, 600)),
    "loops": Kind(loops, (100, 200, 400)),
    "nest": Kind(nest, (125, 250, 500)),
    "tuples": Kind(tuples, (25, 50, 100)),
    "permutes": Kind(permutes, (512, 2_048, 8_192), "v5p"),
    "lines": Kind(lines, (512, 1_024, 2_048), "v5p"),
    "uneven": Kind(uneven, (512, 1_024, 2_048), "v5p"),
    "gathers": Kind(gathers, (256, 512, 1_024)),
    "channels": Kind(channels, (512, 2_048, 8_192), "v5p"),
    "fed": Kind(fed, (512, 2_048, 8_192), "v5p"),
    "reduces": Kind(reduces, (256, 1_024, 8_192), "v5p"),
}

STAGES = ("load", "check", "lower", "simulate", "report")


def main() -> None:
    """Print a line per kind."""
    parser = argparse.ArgumentParser(description="How time grows with programs.")
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(PROGRAMS)} (default: all)")
    parser.add_argument("--sizes", help="instead of the kind's own: N,N,N")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for kind in options.kinds or PROGRAMS:
        sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else PROGRAMS[kind].sizes
        if options.inside:
            print(*stage_seconds(kind, sizes[0]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
        else:
            _report(kind, sizes)


def _report(kind: str, sizes: Sequence[int]) -> None:
    """Measure a kind of program and print how its stages grow."""
    found = []
    for size in sizes:
        command = [sys.executable, "-m", "benchmarks.growth", kind, "--inside", "--sizes", str(size)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append([float(word) for word in done.stdout.split()])
    *stages, memory = zip(*found, strict=True)
    total = [sum(seconds) for seconds in zip(*stages, strict=True)]
    parts = ", ".join(
        f"{name} {seconds[-1]:.2f} s ^{exponent(sizes, seconds):.2f}"
        for name, seconds in zip(STAGES, stages, strict=True)
    )
    print(f"{kind} {', '.join(map(str, sizes))}: {total[-1]:.2f} s, {memory[-1]:.2f} GB, ", end="")
    print(f"exponent {exponent(sizes, total):.2f} ({parts})", flush=True)


def stage_seconds(kind: str, size: int) -> list[float]:
    """Return the CPU seconds that each stage takes for a program of a kind."""
    chip = load_chip(PROGRAMS[kind].chip)
    source = SourceText(kind, PROGRAMS[kind].text(size))
    marks = [time.process_time()]
    module = parse_module(source)
    marks.append(time.process_time())
    verified = verify_module(module)
    marks.append(time.process_time())
    program = lower_module(verified, chip)
    marks.append(time.process_time())
    result = Result(program, chip, simulate_pod([program], chip), module)
    marks.append(time.process_time())
    render_run(result.summary, result.groups("op"), "op", Console(file=io.StringIO()), None)
    marks.append(time.process_time())
    return [after - before for before, after in pairwise(marks)]


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the exponent of growth, NaN of one size: the slope of the line through the logarithms that fits best."""
    if len(sizes) < 2:
        return math.nan
    # Below a millisecond a clock shows its own steps.
    return statistics.linear_regression(
        [math.log(size) for size in sizes], [math.log(max(each, 1e-3)) for each in seconds]
    ).slope


if __name__ == "__main__":
    main()
