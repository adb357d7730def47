"""Mutations of MLIR in its generic form: operations, attributes, types, values; most of them MLIR still reads."""

from __future__ import annotations

import re
from functools import cache
from random import Random

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _tpu_ext

from tests.robust.mutations import HUGE, Mutation

_TRIES = 12
_OPERATION = re.compile(r'(?<=")[\w.]+(?="\()')
_VALUE = re.compile(r"%\w+")
_ATTRIBUTE = re.compile(r"\w+ = [^,{}<>]+(?:<[^<>]*>)?(?:, |(?=\}))")
_NUMBER = re.compile(r"(?<== )-?\d+(?= : )|(?<=: )-?\d+(?=[,>])|(?<=, )-?\d+(?=[,>])")
_TYPE = re.compile(r"(?:vector|memref)<(\d+(?:x\d+)*)x(\w+)[^<>]*(?:<[^<>]*>)?>")
_ELEMENTS = ("f32", "bf16", "i32", "i1", "i8", "f8E4M3FN", "i64", "index")
_SIZES = ("0", "1", "2", "7", "8", "64", "100", "129", "256", "4096", "100000", *HUGE)


def _in_some_line(pattern: re.Pattern[str], others: tuple[str, ...] = ()) -> Mutation:
    """Return a mutation that puts one of some texts, or what is found elsewhere, in the place of what is found."""

    def change(random: Random, lines: list[str]) -> None:
        found = [(place, match) for place, line in enumerate(lines) for match in pattern.finditer(line)]
        if found:
            place, match = random.choice(found)
            other = random.choice(others) if others else random.choice(found)[1][0]
            lines[place] = lines[place][: match.start()] + other + lines[place][match.end() :]

    return change


def _other_type(random: Random, lines: list[str]) -> None:
    """Give a type another size or other elements wherever it stands, so that values have the types of their uses."""
    types = sorted({match[0] for line in lines for match in _TYPE.finditer(line)})
    if not types:
        return
    old = random.choice(types)
    found = _TYPE.fullmatch(old)
    assert found
    sizes, element = found[1].split("x"), found[2]
    if random.random() < 0.3:
        element = random.choice(_ELEMENTS)
    elif random.random() < 0.2:
        sizes = random.choice((sizes[1:], [*sizes, "8"], sizes[::-1]))
    else:
        sizes[random.randrange(len(sizes))] = random.choice(_SIZES)
    new = old.replace(f"<{found[1]}x{found[2]}", "<" + "x".join((*sizes, element)))
    lines[:] = [line.replace(old, new) for line in lines]


def _without_result(lines: list[str]) -> list[int]:
    return [place for place, line in enumerate(lines) if line.strip().startswith('"') and line.endswith("-> ()")]


def _delete(random: Random, lines: list[str]) -> None:
    if places := _without_result(lines):
        del lines[random.choice(places)]


def _repeat(random: Random, lines: list[str]) -> None:
    if places := _without_result(lines):
        place = random.choice(places)
        lines.insert(random.choice(places), lines[place])


_OF_MLIR: tuple[Mutation, ...] = (
    *(_in_some_line(_OPERATION),) * 3,
    *(_in_some_line(_NUMBER, _SIZES),) * 3,
    *(_in_some_line(_VALUE),) * 3,
    *(_other_type,) * 4,
    _in_some_line(_ATTRIBUTE, ("",)),
    _delete,
    _repeat,
)


@cache
def generic_text(body: bytes) -> str:
    """Return a kernel's body as MLIR writes what it knows nothing of."""
    with _context():
        return str(ir.Module.parse(body).operation.get_asm(print_generic_op_form=True))


def mutated_mlir(random: Random, text: str) -> str:
    """Return a module in generic form after one to three mutations, all such that MLIR reads it, if some are."""
    for _ in range(random.choice((1, 1, 2, 3))):
        for _ in range(_TRIES):
            lines = text.split("\n")
            random.choice(_OF_MLIR)(random, lines)
            changed = "\n".join(lines)
            if changed != text and _is_read(changed):
                text = changed
                break
    return text


def _is_read(text: str) -> bool:
    with _context():
        try:
            ir.Module.parse(text)
        except (ir.MLIRError, ValueError):
            return False
    return True


def _context() -> ir.Context:
    context = ir.Context()
    _tpu_ext.register_dialect(context)
    context.allow_unregistered_dialects = True
    return context
