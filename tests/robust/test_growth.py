"""Time grows with the program and no faster: exponents of CPU time over sizes, and programs that once took for ever."""

from __future__ import annotations

from itertools import cycle, islice, permutations
from time import process_time

import numpy as np
import pytest

import tpusim
from benchmarks.growth import PROGRAMS, stage_seconds
from tests.growth import MOST, grows_by
from tests.peak import peak_bytes_of
from tests.semantics.hlo import parse
from tpusim.program.buffers import heap_bytes

SIZES = {
    "chain": (200, 400, 800),
    "copies": (400, 800, 1600),
    "buffers": (200, 400, 800),
    "outputs": (400, 800, 1600),
    "updates": (1000, 2000, 4000),
    "joins": (1000, 2000, 4000),
    "carried": (250, 500, 1000),
    "calls": (150, 300, 600),
    "ladder": (150, 300, 600),
    "branches": (150, 300, 600),
    "loops": (100, 200, 400),
    "nest": (125, 250, 500),
    "tuples": (25, 50, 100),
    "permutes": (256, 512, 1024),
    "lines": (256, 512, 1024),
    "uneven": (512, 1024, 2048),
    "gathers": (64, 128, 256),
    "channels": (256, 512, 1024),
    "fed": (256, 512, 1024),
    "reduces": (256, 1024, 4096),
}


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_of_others")
@pytest.mark.parametrize("kind", SIZES)
def test_time_grows_with_the_program(kind):
    """All stages of a run. Each of tuples in one another states all those in it: there each that is stated counts."""
    sizes = {PROGRAMS[kind].text(size).count("(") if kind == "tuples" else size: size for size in SIZES[kind]}
    assert grows_by(lambda grown: sum(stage_seconds(kind, sizes[grown])), [*sizes]) < MOST


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_of_others")
@pytest.mark.parametrize("schedule", ["compiled", "retiled"])
@pytest.mark.parametrize("kind", ["chain", "loops", "fed", "joins", "carried", "gathers"])
def test_compiling_grows_with_the_program(kind, schedule):
    """As running does: a draft that was written once for each of the loops inside one another grew as their square."""

    def seconds(size: int) -> float:
        module = parse(PROGRAMS[kind].text(size))
        begin = process_time()
        tpusim.simulate(module, PROGRAMS[kind].chip, schedule=schedule)
        return process_time() - begin

    assert grows_by(seconds, SIZES[kind]) < MOST


@pytest.mark.slow
def test_loops_in_loops_are_compiled_however_deep_they_are():
    """Each asks what those inside it change; Python's stack ended at five hundred."""
    result = tpusim.simulate(parse(PROGRAMS["loops"].text(600)), "v5e", schedule="compiled")
    assert max(record.count for record in result.timeline.records) == 2**600


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_of_others")
@pytest.mark.parametrize("made", ["real(z)", "add(p, p)"])
def test_compiling_grows_with_one_kernel(made):
    """A chain of squares that one kernel makes; the parts of complex ones were made anew for each of 2^n uses."""

    def seconds(size: int) -> float:
        kind = "c64" if made == "real(z)" else "f32"
        squares = "".join(f"  y{n + 1} = {kind}[64] multiply(y{n}, y{n})\n" for n in range(size))
        first = "complex(p, p)" if kind == "c64" else "negate(p)"
        last = made.replace("z", f"y{size}").replace("p, p", f"p, y{size}")
        text = f"HloModule m\n\nENTRY e {{\n  p = f32[64] parameter(0)\n  y0 = {kind}[64] {first}\n{squares}"
        module = parse(f"{text}  ROOT r = f32[64] {last}\n}}\n")
        begin = process_time()
        tpusim.simulate(module, "v5e")
        return process_time() - begin

    assert grows_by(seconds, (500, 1000, 2000)) < MOST


CHAINS = {
    "of one that is turned": ("", "z{n} = bf16[256,256] tanh(y{n})  y{m} = bf16[256,256] add(z{n}, t)"),
    "of some that are turned": (
        "b{n} = bf16[256,256] parameter({p})  t{n} = bf16[256,256] transpose(b{n}), dimensions={{1,0}}",
        "z{n} = bf16[256,256] tanh(y{n})  y{m} = bf16[256,256] add(z{n}, t{n})",
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_of_others")
@pytest.mark.parametrize("chain", CHAINS)
def test_compiling_grows_with_a_chain_behind_a_product(chain):
    """What its kernels may make was asked of all that is before."""

    def seconds(size: int) -> float:
        lines = [part.format(n=n, m=n + 1, p=n + 3) for part in CHAINS[chain] for n in range(size if part else 0)]
        module = parse(
            "HloModule m\n\nENTRY e {\n  x = bf16[256,256] parameter(0)  w = bf16[256,256] parameter(1)\n"
            "  b = bf16[256,256] parameter(2)  t = bf16[256,256] transpose(b), dimensions={1,0}\n"
            "  y0 = bf16[256,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n  "
            + "\n  ".join(lines)
            + f"\n  ROOT r = bf16[256,256] negate(y{size})\n}}\n"
        )
        begin = process_time()
        tpusim.compile(module, "v5e")
        return process_time() - begin

    assert grows_by(seconds, (250, 500, 1000)) < MOST


def reduces_in_groups(devices: int) -> str:
    """Return fifty all-reduces among the devices of a pod, in groups that are those of one of three."""
    each = devices // 8
    texts = f"[{each},8]<=[{devices}]", f"[{each},8]<=[8,{each}]T(1,0)", f"[8,{each}]<=[{devices}]"
    array = "f32[8,128]{1,0:T(8,128)}"
    lines = [
        f"x{n} = {array} all-reduce({f'x{n - 1}' if n else 'p'}), channel_id={n + 1}, to_apply=sum, "
        f"replica_groups={texts[n % len(texts)]}, use_global_device_ids=true"
        for n in range(50)
    ]
    one = PROGRAMS["reduces"].text(devices)
    body, _, _ = one.partition("  ROOT r = ")
    return body + "".join(f"  {line}\n" for line in lines) + f"  ROOT r = {array} add(x49, x49)\n}}\n"


@pytest.mark.parametrize("verb", ["check", "run"])
@pytest.mark.parametrize("groups", ["[1,65536]<=[65536]", "[256,256]<=[256,256]T(1,0)", "[32768,2]<=[65536]"])
def test_the_largest_slice_in_few_words_takes_little_memory(tmp_path, groups, verb):
    """A chip has six links, and a group of all of them 400,000 in its plan."""

    def peak_bytes(devices: int, groups: str) -> int:
        path = tmp_path / f"p{devices}.hlo.txt"
        path.write_text(
            f"HloModule m, is_scheduled=true, replica_count={devices}\n\n"
            "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n\n"
            "ENTRY e {\n  x = f32[1024]{0:T(1024)} parameter(0)\n"
            "  ROOT r = f32[1024]{0:T(1024)} all-reduce(x), channel_id=1, use_global_device_ids=true, "
            f"replica_groups={groups}, to_apply=add\n}}\n"
        )
        return peak_bytes_of(verb, str(path), *(("--chip", "v5p") if verb == "run" else ()))

    assert peak_bytes(2**16, groups) - peak_bytes(8, "[1,8]<=[8]") < 64 << 20


def reduces_in_ways(count: int) -> str:
    """Return so many all-reduces among 4096 devices, each in groups of its own: axes of a mesh in another order."""
    orders = [",".join(map(str, order)) for order in islice(permutations(range(6)), count)]
    array = "f32[8,128]{1,0:T(8,128)}"
    lines = [
        f"  x{n + 1} = {array} all-reduce(x{n}), channel_id={n + 1}, use_global_device_ids=true, to_apply=add, "
        f"replica_groups=[{4096 // size},{size}]<=[4,4,4,4,4,4]T({order})\n"
        for n, (order, size) in enumerate(zip(orders, cycle((16, 64, 256)), strict=False))
    ]
    return (
        "HloModule m, is_scheduled=true, num_partitions=4096\n\n"
        "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n\n"
        f"ENTRY e {{\n  x0 = {array} parameter(0)\n{''.join(lines)}  ROOT r = {array} negate(x{count})\n}}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "options"),
    [("run", ()), ("explain", ()), ("advise", ("--quiet",)), ("run", ("-o", "devices.5.clock=0.5"))],
    ids=["run", "explain", "advise", "two cohorts"],
)
def test_collectives_in_hundreds_of_ways_take_little_memory(tmp_path, verb, options):
    """Of each its groups, its load on 24,000 links and who meets whom would be a megabyte."""

    def peak_bytes(count: int) -> int:
        path = tmp_path / f"p{count}.hlo.txt"
        path.write_text(reduces_in_ways(count))
        return peak_bytes_of(verb, str(path), "--chip", "v5p", *options)

    assert peak_bytes(100) - peak_bytes(1) < 64 << 20


@pytest.mark.parametrize(
    ("text", "devices"), [(PROGRAMS["permutes"].text, 256), (reduces_in_groups, 4096)], ids=["permutes", "reduces"]
)
def test_runs_of_one_command_leave_no_garbage_that_adds_up(tmp_path, text, devices):
    """``explain`` runs a permute in a hundred orders of its devices; each leaves objects that refer to each other.

    Of thousands of devices in groups there are tables of some megabytes for each order.
    """

    def peak_bytes(devices: int) -> int:
        path = tmp_path / f"p{devices}.hlo.txt"
        path.write_text(text(devices))
        return peak_bytes_of("explain", str(path), "--chip", "v5p")

    assert peak_bytes(devices) - peak_bytes(8) < 64 << 20


def test_calls_of_calls_are_timed_as_often_as_they_run():
    """Forty levels of calling twice: 2**39 times the time of what is called at last, in no time."""
    leaf, deep = (tpusim.simulate(parse(PROGRAMS["calls"].text(levels)), "v5e") for levels in (1, 40))
    assert deep.summary.total_ps - leaf.summary.total_ps == (2**39 - 1) * (leaf.groups("op")[0].time_ps)
    assert [group.count for group in deep.groups("op")] == [2**39]


@pytest.mark.parametrize("levels", [2, 3, 4, 8])
def test_what_is_shared_takes_what_it_takes_written_out(levels):
    """Each call with a computation of its own is the naive twin: the same records at the same times, and traffic."""
    texts = PROGRAMS["calls"].text(levels), written_out(levels)
    shared, apart = (tpusim.simulate(parse(text), "v5e") for text in texts)
    records = [
        [(r.opcode, r.row, r.start_ps, r.end_ps, r.count) for r in run.timeline.records] for run in (shared, apart)
    ]
    assert records[0] == records[1]
    assert [g.hbm_bytes for g in shared.groups("category")] == [g.hbm_bytes for g in apart.groups("category")]


def test_many_calls_of_calls_fill_no_time_line():
    """Two hundred levels that multiply: a record for each instruction, counted for all the ways to it."""
    run = tpusim.simulate(parse(PROGRAMS["ladder"].text(200)), "v5e")
    assert sorted(record.count for record in run.timeline.records) == [2**n for n in range(200)]
    assert sum(record.total_ps for record in run.timeline.records) == run.summary.total_ps


@pytest.mark.parametrize("levels", [2, 3, 4, 5, 6])
def test_what_is_shared_needs_no_less_memory_than_written_out(levels):
    """What runs again is one block of HBM's heap, on the safe side: it lies in no hole, and reuses no output."""
    texts = PROGRAMS["calls"].text(levels), written_out(levels)
    shared, apart = (heap_bytes(tpusim.lower(parse(text), "v5e").buffers) for text in texts)
    assert apart <= shared <= 2 * apart


def written_out(levels: int) -> str:
    """The same calls, each with a computation of its own."""
    array, made = "f32[8,128]{1,0:T(8,128)}", list[str]()

    def called(level: int) -> str:
        inner = [called(level - 1) for _ in range(2)] if level else []
        lines = [f"b = {array} add(x, x)"]
        if inner:
            lines = [f"a = {array} call(x), to_apply={inner[0]}", f"b = {array} call(a), to_apply={inner[1]}"]
        name = f"c_{len(made)}"
        made.append("\n".join((f"{name} {{", f"x = {array} parameter(0)", *lines[:-1], f"ROOT {lines[-1]}", "}")))
        return name

    top = called(levels - 1)
    entry = f"ENTRY e {{\np = {array} parameter(0)\nROOT r = {array} call(p), to_apply={top}\n}}"
    return "\n\n".join(("HloModule apart, is_scheduled=true", *made, entry))


@pytest.mark.parametrize("kind", ["calls", "nest"])
def test_values_of_nested_calls(kind):
    """Each leaf doubles the value: 64 leaves of a graph, or one below five hundred calls."""
    module = parse(PROGRAMS[kind].text({"calls": 7, "nest": 500}[kind]))
    result = tpusim.execute(module, [np.ones((8, 128), np.float32)])
    assert result[0, 0] == (2.0**64 if kind == "calls" else 2.0)
