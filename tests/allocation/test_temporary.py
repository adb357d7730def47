"""The memory that computations need for a while, told level by level and by all their values at once."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from tpusim.allocation.heap import aligned, alignment_bytes
from tpusim.allocation.liveness import Liveness
from tpusim.allocation.temporary import temporary_bytes
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def shape_of(size):
    """Return the shape of so many rows, of which every other one lies in VMEM."""
    return f"f32[{8 * size},128]{{1,0:T(8,128){'S(1)' if size % 2 else ''}}}"


@st.composite
def programs(draw):
    """Draw a module whose computations of two arrays call those before them, again and again, and make arrays."""
    texts = []
    for level in range(draw(st.integers(1, 5))):
        names, lines = ["x", "y"], []
        for number in range(draw(st.integers(1, 6))):
            one, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
            if level and draw(st.booleans()):
                callee = draw(st.integers(0, level - 1))
                lines.append(f"p{number} = (A, A) call({one}, {other}), to_apply=c{callee}")
                lines += [f"{part}{number} = A get-tuple-element(p{number}), index={i}" for i, part in enumerate("gh")]
                names += [f"g{number}", f"h{number}"]
            else:
                lines.append(f"a{number} = A add({one}, {other})")
                names.append(f"a{number}")
        root = f"ROOT r = (A, A) tuple({draw(st.sampled_from(names))}, {draw(st.sampled_from(names))})"
        body = "\n  ".join(("x = A parameter(0)", "y = A parameter(1)", *lines, root))
        texts.append(f"{f'c{level}'} {{\n  {body}\n}}\n")
    calls = [f"r{n} = (A, A) call(x, y), to_apply=c{len(texts) - 1}" for n in range(2)]
    entry = "\n  ".join(("x = A parameter(0)", "y = A parameter(1)", *calls, "ROOT r = ((A, A), (A, A)) tuple(r0, r1)"))
    text = "HloModule calls, is_scheduled=true\n\n" + "\n".join((*texts, f"ENTRY main {{\n  {entry}\n}}\n"))
    return parse_module(SourceText("test", text.replace("A", shape_of(draw(st.integers(1, 2))))))


def at_once(liveness, visited):
    """Return the same by all values that were made on the way, however deep, position by position."""
    result = {number for part in visited.result for number in part}
    values = [liveness.values[number] for number in visited.made if number not in result]
    values = [v for v in values if not (v.is_phi or v.is_update or v.instruction.opcode == "constant")]
    alive = defaultdict(lambda: defaultdict(int))
    for value in values + [liveness.scratch[number] for number in visited.scratch]:
        for position in range(value.first, value.last + 1):
            alive[value.space][position] += aligned(value.n_bytes, alignment_bytes(value.space))
    return {space: max(by_position.values()) for space, by_position in alive.items()}


@settings(max_examples=150)
@given(programs())
def test_memory_of_nested_calls_is_that_of_all_their_values(module):
    """Also where arrays are handed on through several levels, and end inside a call."""
    liveness = Liveness(module, 1)
    for visited in liveness._visits.values():
        visited.needs = None
        assert temporary_bytes(visited, liveness.values, liveness.scratch) == at_once(liveness, visited)
