"""Programs: scheduled and unscheduled HLO text, StableHLO, serialised HLO, Pallas kernels, lowered programs."""

from __future__ import annotations

import base64
import json
import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path
from random import Random
from unittest.mock import patch

from tests.robust.calls import custom_call
from tests.robust.contract import Wrong, check_text, pick, surface
from tests.robust.control import control_flow
from tests.robust.mutations import encoded, mutated_bytes, mutated_text, mutated_tree
from tests.robust.programs import mutated_hlo, scheduled, sharded, texts_of, unscheduled
from tests.robust.wire import mutated_message
from tpusim.errors import ProgramError, TpusimError
from tpusim.frontends.xla import jaxlib
from tpusim.hardware.chip import Chip
from tpusim.hardware.load import load_chip
from tpusim.ir.module import Module
from tpusim.ir.mosaic import read_body
from tpusim.limits import KERNEL_BYTES
from tpusim.pipeline.answers.explain import explain_op
from tpusim.pipeline.compile import compile_program
from tpusim.pipeline.result import Result
from tpusim.pipeline.stages import execute, lower, read_program, simulate
from tpusim.program.module import walk
from tpusim.program.steps import Kernel
from tpusim.program.stored import decode_program, encode_program
from tpusim.report.json.page import json_text
from tpusim.report.json.run import run_page
from tpusim.semantics.verify.module import problems
from tpusim.text.printer import print_module

_CHIPS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x")
_BODY = re.compile(r'(?<="body":")[^"]+')


def chip_for(content: bytes) -> Chip:
    """Return a chip that follows from an input."""
    return load_chip(_CHIPS[pick(content, len(_CHIPS))])


def _stated_wrong(module: Module) -> str:
    """Return what ``check`` says first of a module, or nothing."""
    return next((str(problem) for problem in problems(module)), "")


def check_result(result: Result) -> None:
    """Refuse a result below its own roofline, and pages that cannot be made of it or would drive a terminal."""
    summary, total_ps = result.summary, result.timeline.total_ps
    # A roof is a sum of times that were each rounded to the picosecond; those of ages are, as floats, to 53 bits.
    if total_ps < summary.roofline.bound_ps * (1 - 1e-12) - len(result.timeline.records):
        raise Wrong(f"{total_ps} ps, below the roofline's {summary.roofline.bound_ps} ({summary.roofline.bound_by})")
    if total_ps % 4 == 0:
        check_text(str(result))
        json_text(run_page(summary, result.communication, {}, result.cost()))


def _run(module: Module, content: bytes, schedule: str = "") -> Result:
    """Check and run a module, and return the result; what one refuses the other one has to refuse."""
    wrong = _stated_wrong(module)
    try:
        result = simulate(module, chip_for(content), schedule=schedule, allow_overflow=pick(content, 2) == 0)
    except ProgramError as error:
        if not wrong:
            raise Wrong(f"run refuses what check accepts: {error}") from error
        raise
    if wrong:
        raise Wrong(f"run takes what check refuses: {wrong}")
    check_result(result)
    return result


@surface("hlo", lambda random: mutated_hlo(random, scheduled()), 24)
def take_scheduled(content: bytes, folder: Path) -> None:
    """Read, check, lower and run a scheduled program, and print what came of it."""
    _run(read_program("case.hlo.txt", content), content)


@surface("control", control_flow, 2)
def take_control_flow(content: bytes, folder: Path) -> None:
    """Run a program of calls, loops and conditionals: each kernel as often as its text says, where that is certain."""
    result = _run(read_program("case.hlo.txt", content), content)
    if result.program.choosers:
        return
    expected, found = Counter[str](), Counter[str]()
    for step, count in walk(result.program.steps):
        if isinstance(step, Kernel):
            expected[step.name] += count
    for record in result.timeline.records:
        if record.name in expected and not record.is_wait:
            found[record.name] += record.count
    if found != expected:
        raise Wrong(f"kernels ran {+(found - expected)} more and {+(expected - found)} less often than the text says")


@surface("calls", custom_call, 2)
def take_custom_call(content: bytes, folder: Path) -> None:
    """Run a custom call, or compute it: a result has the shape that is stated."""
    module = read_program("case.hlo.txt", content)
    if pick(content, 2):
        _run(module, content, ("", "compiled")[pick(content, 4) // 2])
        return
    if not _stated_wrong(module):
        _compute(module)


@surface("unscheduled", lambda random: mutated_hlo(random, unscheduled() + sharded()), 6)
def take_unscheduled(content: bytes, folder: Path) -> None:
    """Compile and run a program that nobody has compiled."""
    _run(read_program("case.hlo.txt", content), content)


@surface("retiled", lambda random: mutated_hlo(random, scheduled()), 4)
def take_retiled(content: bytes, folder: Path) -> None:
    """Choose the tiles of a scheduled program anew, or undo its compiler's work and compile it again."""
    _run(read_program("case.hlo.txt", content), content, ("retiled", "compiled")[pick(content, 2)])


@surface("compile", lambda random: mutated_hlo(random, unscheduled() + sharded()), 3)
def take_compiled(content: bytes, folder: Path) -> None:
    """Compile a program; what comes out has to verify."""
    compiled = compile_program(read_program("case.hlo.txt", content), chip_for(content))
    if wrong := _stated_wrong(compiled.module):
        raise Wrong(f"compiled to what check refuses: {wrong}")


@surface("print", lambda random: mutated_hlo(random, scheduled() + unscheduled()), 10)
def take_printed(content: bytes, folder: Path) -> None:
    """Print what was read: read again, it prints the same, and is as right as before."""
    module = read_program("case.hlo.txt", content)
    text = print_module(module)
    again = read_program("case.hlo.txt", encoded(text))
    if print_module(again) != text:
        raise Wrong("printed twice, two texts")
    if bool(_stated_wrong(again)) != bool(_stated_wrong(module)):
        raise Wrong(f"printed, it is as right as not before: {_stated_wrong(module) or _stated_wrong(again)}")


_LARGE, _LARGE_IN_LOOPS, _BEYOND = 1 << 24, 1 << 18, 1 << 36


@surface("exec", lambda random: mutated_hlo(random, unscheduled() + texts_of("tests/data/numeric/*.v*.gz")), 6)
def take_executed(content: bytes, folder: Path) -> None:
    """Compute a program on random inputs."""
    _compute(read_program("case.hlo.txt", content))


@surface("loops", control_flow)
def take_loops(content: bytes, folder: Path) -> None:
    """Compute a program of calls, loops and conditionals, which may go on for ever."""
    from tpusim.numerics import execute as room

    # Sooner stopped than for users: another test goes to their limit.
    with patch.object(room, "LOOPED_INSTRUCTIONS", 1 << 14):
        _compute(read_program("case.hlo.txt", content))


def _compute(module: Module) -> None:
    from tpusim.numerics.files import random_inputs

    shapes = [parameter.shape for parameter in module.entry.parameters]
    # The inputs are the caller's to make, and the memory of large values, while they fit any, is the program's to take.
    nodes = [one for each in module.computations for one in each]
    largest = max(shape_bytes(one.shape) for one in nodes)
    # A stencil of 4 MB takes 40 seconds for 50 trips, if it is of f8.
    most = _LARGE_IN_LOOPS if any(one.opcode == "while" for one in nodes) else _LARGE
    if sum(map(shape_bytes, shapes)) <= 1 << 22 and not most < largest < _BEYOND:
        execute(module, random_inputs(shapes, 0))


def shape_bytes(shape: object) -> int:
    """Return the bytes of the arrays of a shape."""
    from tpusim.shapes.address import physical_bytes
    from tpusim.shapes.shape import leaves

    return sum(physical_bytes(leaf) if leaf.dtype.is_array_type else 0 for leaf in leaves(shape))


@cache
def _protos() -> tuple[bytes, ...]:
    """Return serialised programs that a front end made."""
    read = jaxlib("a case").hlo.hlo_module_from_text
    texts = [text for text in unscheduled() if text.startswith("HloModule jit")][:40]
    return tuple(read(text).as_serialized_hlo_module_proto() for text in texts)


@cache
def _bytecode() -> tuple[bytes, ...]:
    """Return the same programs as bytecode of StableHLO."""
    return tuple(map(jaxlib("a case").mlir.hlo_to_stablehlo, _protos()))


@cache
def _stablehlo() -> tuple[str, ...]:
    """Return the same programs as text of StableHLO."""
    # By another process, since programs are read in this one beside JAX, and apart from it without.
    done = subprocess.run(
        [sys.executable, "-c", _WRITER], input=pickle.dumps(_bytecode()), capture_output=True, check=True
    )
    return tuple(pickle.loads(done.stdout))


_WRITER = """
import pickle, sys
from jax._src.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir
with make_ir_context():
    found = [str(ir.Module.parse(content)) for content in pickle.load(sys.stdin.buffer)]
sys.stdout.buffer.write(pickle.dumps(found))
"""


def _proto(random: Random) -> bytes:
    """Return serialised HLO that is damaged as bytes, or as messages, which is what a reader of such goes through."""
    mutated = mutated_bytes if random.random() < 0.2 else mutated_message
    return mutated(random, random.choice(_protos()))


@surface("proto", _proto, 3)
def take_proto(content: bytes, folder: Path) -> None:
    """Read and check serialised HLO."""
    _run(read_program("case.pb", content), content)


def _damaged(random: Random, programs: str) -> bytes:
    """Return one of some programs whose kernels' bodies are changed, as texts of MLIR or as bytes."""
    # It loads jaxlib, which other surfaces do without.
    from tests.robust.mlir import generic_text, mutated_mlir

    text = random.choice(texts_of(programs, 60_000))

    def changed(found: re.Match[str]) -> str:
        body = base64.b64decode(found[0])
        if random.random() < 0.1:
            return base64.b64encode(mutated_bytes(random, body)).decode()
        mutated = mutated_text if random.random() < 0.1 else mutated_mlir
        return base64.b64encode(encoded(mutated(random, generic_text(body)))).decode()

    return encoded(_BODY.sub(changed, text))


@surface("pallas", lambda random: _damaged(random, "tests/data/pallas/*.gz"), 4)
def take_pallas(content: bytes, folder: Path) -> None:
    """Run a program with a Pallas kernel whose body is damaged, and say why its ops take as long as they do."""
    result = _run(read_program("case.v5e.hlo.txt", content), content)
    for kernel in (step for step in result.program.every_step[:8] if isinstance(step, Kernel)):
        explain_op(result, kernel.name)


@surface("kernels", lambda random: _damaged(random, "tests/data/pallas_values/*.gz"), 4)
def take_kernels(content: bytes, folder: Path) -> None:
    """Compute a program with a Pallas kernel whose body is damaged."""
    module = read_program("case.v5e.hlo.txt", content)
    # As large as VMEM is, values are larger than what a case may take.
    if not any(1 << 20 < size <= KERNEL_BYTES.most for size in _sizes_in_kernels(module)):
        _compute(module)


def _sizes_in_kernels(module: Module) -> Iterator[int]:
    """Yield the bytes of all values of hand-written kernels."""
    bodies = {one.backend_config.kernel_body for each in module.computations for one in each}
    for body in map(read_body, filter(None, bodies)):
        for function in (body.main, *body.functions.values()):
            yield from (prod(kind.dimensions) * kind.element_bits // 8 for kind in function.types)


@cache
def _lowered() -> tuple[dict[str, object], ...]:
    found = []
    for text in scheduled()[::3]:
        try:
            found.append(
                json.loads(encode_program(lower(read_program("case.hlo.txt", encoded(text)), load_chip("v5e"))))
            )
        except TpusimError:
            continue
    return tuple(tree for tree in found if len(json.dumps(tree)) < 20_000)


def _lowered_text(random: Random) -> bytes:
    tree = random.choice(_lowered())
    if random.random() < 0.2:
        return encoded(mutated_text(random, json.dumps(tree, indent=1)))
    return encoded(json.dumps(mutated_tree(random, tree)))


@surface("lowered", _lowered_text, 12)
def take_lowered(content: bytes, folder: Path) -> None:
    """Run a lowered program that someone has edited; it reads as it was written."""
    program = decode_program(content, "case.json")
    written = encode_program(program)
    if encode_program(decode_program(written.encode(), "case.json")) != written:
        raise Wrong("written twice, two texts")
    check_result(simulate(program, chip_for(content), allow_overflow=True))


@surface("bytecode", lambda random: mutated_bytes(random, random.choice(_bytecode())), 1)
def take_bytecode(content: bytes, folder: Path) -> None:
    """Read, check and run StableHLO's bytecode."""
    _run(read_program("case.mlirbc", content), content)


@surface("stablehlo", lambda random: encoded(mutated_text(random, random.choice(_stablehlo()))), 3)
def take_stablehlo(content: bytes, folder: Path) -> None:
    """Read, check and run StableHLO's text."""
    _run(read_program("case.mlir", content), content)
