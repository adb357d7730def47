"""Programs in which the ways through calls, loops and branches multiply, while their text grows by lines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

COUNT, ARRAY = "s32[]{:T(128)}", "f32[8,128]{1,0:T(8,128)}"
BOTH = f"({COUNT}, {ARRAY})"

_GIVEN = (
    f"q = {BOTH} parameter(0)",
    f"n = {COUNT} get-tuple-element(q), index=0",
    f"x = {ARRAY} get-tuple-element(q), index=1",
    f"one = {COUNT} constant(1)",
)
# What is below a computation is entered with two numbers that no other way has.
_NUMBERS = (f"a = {COUNT} add(n, n)", f"b = {COUNT} add(a, one)")
_FROM_ZERO = (f"z = {COUNT} constant(0)", f"t = {BOTH} tuple(z, x)")


def _computation(name: str, *lines: str) -> str:
    *before, last = lines
    return f"{name} {{\n" + "".join(f"  {line}\n" for line in before) + f"  ROOT {last}\n}}"


def _module(*computations: str) -> str:
    return "\n\n".join(("HloModule ways, is_scheduled=true", *computations))


def _same(name: str = "same") -> str:
    return _computation(name, *_GIVEN, f"r = {BOTH} tuple(n, x)")


def _twice(name: str) -> str:
    return _computation(name, *_GIVEN, f"k = {ARRAY} add(x, x)", f"r = {BOTH} tuple(n, k)")


def _entry(*lines: str) -> str:
    first = (f"x = {ARRAY} parameter(0)", f"one = {COUNT} constant(1)", f"q = {BOTH} tuple(one, x)")
    return _computation("ENTRY e", *first, *lines)


def _less(trips: int) -> str:
    """Return the condition of loops to a number."""
    limit = f"m = {COUNT} constant({trips})"
    return _computation("less", *_GIVEN, limit, "l = pred[]{:T(512)} compare(n, m), direction=LT")


def _levels(levels: int, lines: Callable[[str], tuple[str, ...]]) -> list[str]:
    """Return computations ``c_1`` and so on; ``lines`` say what each does with the one below it."""
    names = pairwise(f"c_{level}" for level in range(levels + 1))
    return [_computation(name, *_GIVEN, *_NUMBERS, *lines(below)) for below, name in names]


def called(levels: int) -> str:
    """Calls with 2n and 2n+1, from 1 on; at the bottom even numbers choose the kernel ``k``."""
    texts = [_same(), _twice("twice")]
    choose = f"r = {BOTH} conditional(i, q, q), branch_computations={{twice, same}}"
    texts.append(_computation("c_0", *_GIVEN, f"i = {COUNT} and(n, one)", choose))
    texts += _levels(
        levels,
        lambda below: (
            f"s = {BOTH} tuple(a, x)",
            f"f = {BOTH} call(s), to_apply={below}",
            f"y = {ARRAY} get-tuple-element(f), index=1",
            f"t = {BOTH} tuple(b, y)",
            f"r = {BOTH} call(t), to_apply={below}",
        ),
    )
    return _module(*texts, _entry(f"r = {BOTH} call(q), to_apply=c_{levels}"))


def chosen(levels: int) -> str:
    """Branches with 2n and 2n+1, of a number that only values tell; ``k`` is at the bottom."""
    texts = _levels(
        levels,
        lambda below: (
            f"s = {BOTH} tuple(a, x)",
            f"t = {BOTH} tuple(b, x)",
            f"i = {COUNT} and(n, one)",
            f"r = {BOTH} conditional(i, s, t), branch_computations={{{below}, {below}}}",
        ),
    )
    given = (f"x = {ARRAY} parameter(0)", f"n = {COUNT} parameter(1)", f"q = {BOTH} tuple(n, x)")
    choose = f"r = {BOTH} conditional(n, q, q), branch_computations={{c_{levels}, c_{levels}}}"
    return _module(_twice("c_0"), *texts, _computation("ENTRY e", *given, choose))


def summed(levels: int) -> str:
    """A loop with as many trips as the numbers that ``called`` has at its bottom are together."""
    texts = [_computation("c_0", f"n = {COUNT} parameter(0)")]
    for level in range(1, levels + 1):
        calls = [f"{name} = {COUNT} call({of}), to_apply=c_{level - 1}" for name, of in (("f", "a"), ("g", "b"))]
        number, one = f"n = {COUNT} parameter(0)", f"one = {COUNT} constant(1)"
        texts.append(_computation(f"c_{level}", number, one, *_NUMBERS, *calls, f"r = {COUNT} add(f, g)"))
    sums = f"m = {COUNT} call(one), to_apply=c_{levels}"
    texts.append(_computation("less", *_GIVEN, sums, "l = pred[]{:T(512)} compare(n, m), direction=LT"))
    step = (f"y = {ARRAY} add(x, x)", f"j = {COUNT} add(n, one)", f"r = {BOTH} tuple(j, y)")
    texts.append(_computation("body", *_GIVEN, *step))
    return _module(*texts, _entry(*_FROM_ZERO, f"w = {BOTH} while(t), condition=less, body=body"))


def beside(levels: int) -> str:
    """Calls that each start two others beside them; ``k`` is at the bottom."""
    texts = [_computation("c_0", f"x = {ARRAY} parameter(0)", f"k = {ARRAY} add(x, x)")]
    for level in range(1, levels + 1):
        starts = [f"{name} = (({ARRAY}), {ARRAY}, u32[]) call-start(x), to_apply=c_{level - 1}" for name in ("f", "g")]
        dones = [f"{name}d = {ARRAY} call-done({name})" for name in ("f", "g")]
        texts.append(
            _computation(f"c_{level}", f"x = {ARRAY} parameter(0)", *starts, *dones, f"r = {ARRAY} add(fd, gd)")
        )
    return _module(*texts, _entry(f"r = {ARRAY} call(x), to_apply=c_{levels}"))


def played(loops: int, length: int, trips: int) -> str:
    """Loops one after the other whose counters no closed form tells: each trip goes through ``length`` products."""
    texts, last, entry = [], "x", list[str]()
    texts.append(_less(trips))
    for number in range(loops):
        names = ["n", *(f"a{at}" for at in range(length))]
        products = [f"{new} = {COUNT} multiply({old}, one)" for old, new in pairwise(names)]
        step = (f"j = {COUNT} add({names[-1]}, one)", f"y = {ARRAY} add(x, x)", f"r = {BOTH} tuple(j, y)")
        texts.append(_computation(f"body_{number}", *_GIVEN, *products, *step))
        entry += [
            f"t{number} = {BOTH} tuple(one, {last})",
            f"w{number} = {BOTH} while(t{number}), condition=less, body=body_{number}",
            f"y{number} = {ARRAY} get-tuple-element(w{number}), index=1",
        ]
        last = f"y{number}"
    return _module(*texts, _entry(*entry, f"r = {ARRAY} add({last}, {last})"))


def alternated(levels: int) -> str:
    """Loops from a number to 6 in loops, whose trips choose what goes on by whether their counter is even.

    At the bottom ``k`` is what even numbers choose.
    """
    texts = [_less(7), _twice("even_0"), _same("odd_0")]
    for level in range(1, levels + 1):
        for kind in ("even", "odd"):
            choose = f"w = {BOTH} conditional(i, q, q), branch_computations={{even_{level - 1}, odd_{level - 1}}}"
            step = (f"y = {ARRAY} get-tuple-element(w), index=1", f"j = {COUNT} add(n, one)", f"r = {BOTH} tuple(j, y)")
            texts.append(_computation(f"body_{kind}_{level}", *_GIVEN, f"i = {COUNT} and(n, one)", choose, *step))
            repeat = f"r = {BOTH} while(q), condition=less, body=body_{kind}_{level}"
            texts.append(_computation(f"{kind}_{level}", f"q = {BOTH} parameter(0)", repeat))
    return _module(*texts, _entry(*_FROM_ZERO, f"r = {BOTH} call(t), to_apply=even_{levels}"))


def counted(length: int, how: str) -> str:
    """A loop to 10,000 whose counter grows by 1 in each of so many steps, one of the others' operand or its fusion."""
    inner = (f"n = {COUNT} parameter(0)", f"one = {COUNT} constant(1)", f"r = {COUNT} add(n, one)")
    texts = [_less(10_000), _computation("c_0", *inner)]
    steps = [f"a0 = {COUNT} add(n, one)"]
    if how == "fusion":
        # Fusions in each other, which make one step of all.
        nested = (
            f"f_{at} {{\n  n = {COUNT} parameter(0)\n  ROOT r = {COUNT} fusion(n), kind=kLoop, calls=f_{at - 1}\n}}"
            for at in range(1, length)
        )
        texts += [_computation("f_0", *inner), *nested]
        steps = [f"a{length - 1} = {COUNT} fusion(n), kind=kLoop, calls=f_{length - 1}"]
    else:
        given = {"add": ", one)", "call": "), to_apply=c_0"}[how]
        steps += [f"a{at} = {COUNT} {how}(a{at - 1}{given}" for at in range(1, length)]
    last = (f"y = {ARRAY} add(x, x)", f"r = {BOTH} tuple(a{length - 1}, y)")
    texts.append(_computation("body", *_GIVEN, *steps, *last))
    return _module(*texts, _entry(*_FROM_ZERO, f"w = {BOTH} while(t), condition=less, body=body"))


def fused(length: int) -> str:
    """Fusions in each other of an argument, which the innermost takes."""
    first = f"x = {ARRAY} parameter(0)"
    texts = [_computation("f_0", first, f"r = {ARRAY} add(x, x)")]
    for at in range(1, length):
        texts.append(_computation(f"f_{at}", first, f"r = {ARRAY} fusion(x), kind=kLoop, calls=f_{at - 1}"))
    return _module(*texts, _entry(f"r = {ARRAY} fusion(x), kind=kLoop, calls=f_{length - 1}"))


def overlapped(trips: int) -> str:
    """A call beside the core that goes through large arrays again and again, and on the core, later, the same."""
    large = "f32[2048,1024]{1,0:T(8,128)}"
    both = f"({COUNT}, {large})"
    given = (
        f"q = {both} parameter(0)",
        f"n = {COUNT} get-tuple-element(q), index=0",
        f"x = {large} get-tuple-element(q), index=1",
        f"one = {COUNT} constant(1)",
    )
    texts = []
    for kind, count in (("few", 20_000), ("many", trips)):
        limit = (f"m = {COUNT} constant({count})", "l = pred[]{:T(512)} compare(n, m), direction=LT")
        texts.append(_computation(f"less_{kind}", *given, *limit))
    # So much that enough was played long before its end: then all counts what it does, and begins no trip.
    steps = [f"j{at} = {COUNT} add(n, one)" for at in range(6)]
    texts.append(_computation("idle", *given, *steps, f"r = {both} tuple(j0, x)"))
    step = (f"y = {large} add(x, x)", f"j = {COUNT} add(n, one)", f"r = {both} tuple(j, y)")
    texts.append(_computation("body", *given, *step))
    start = (f"z = {COUNT} constant(0)", f"t = {both} tuple(z, x)")
    repeat = f"w = {both} while(t), condition=less_many, body=body"
    result = f"y = {large} get-tuple-element(w), index=1"
    texts.append(_computation("again", f"x = {large} parameter(0)", *start, repeat, result))
    entry = (
        f"x = {large} parameter(0)",
        *start,
        f"s = (({large}), {large}, u32[]) call-start(x), to_apply=again",
        f"v = {both} while(t), condition=less_few, body=idle",
        f"u = {large} get-tuple-element(v), index=1",
        f"d = {large} call(u), to_apply=again",
        f"e = {large} call-done(s)",
        f"r = ({large}, {large}) tuple(d, e)",
    )
    return _module(*texts, _computation("ENTRY e", *entry))
