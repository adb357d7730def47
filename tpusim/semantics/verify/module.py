"""Whether a module means something: what XLA's verifier would refuse, with the place of it.

Layouts are compared in scheduled modules, since before that no compiler has laid anything out. Beyond XLA's verifier
this one looks for schedules whose sends and receives wait for each other for ever, as the document requires.

Source: XLA, Operation Semantics.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.errors import ProgramError
from tpusim.ir.module import Module
from tpusim.semantics.verify import annotated, async_ops, buffers, channels, layouts, parts, shapes
from tpusim.semantics.verify.structure import check_structure
from tpusim.semantics.verify.view import CHECKS, Finding, View

FAMILIES = (annotated, async_ops, buffers, channels, layouts, parts, shapes)
"""The files that fill ``CHECKS`` by being imported."""


_SEAL = object()


class Verified:
    """A module with which the verifier has found nothing wrong: what is lowered, compiled or computed.

    Only ``verify_module`` makes one, so that no stage after it can be handed a module that ``tpusim check`` refuses.
    """

    __slots__ = ("module",)

    def __init__(self, module: Module, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("Verified: only verify_module makes one")
        self.module = module


def verify_module(module: Module, *, mixed_precision: bool | None = None) -> Verified:
    """Return the module as one with which nothing is wrong.

    ``mixed_precision`` lets operations take floats of several precisions at once, as XLA's verifier does when a
    compiler tells it to. None lets scheduled modules, since TPU compilers leave such operations in fusions.

    Raises:
        ProgramError: The first thing that is wrong, by its label, with file, line and column if the module was read.
    """
    # Lazily: checks after the first finding never run.
    for error in _errors(module, mixed_precision):
        raise error
    return Verified(module, _SEAL)


def problems(module: Module, *, mixed_precision: bool | None = None) -> list[ProgramError]:
    """Return everything that is wrong with the module, in the order of the checks.

    A module that does not hold together (operands or computations that are not there) is not checked further.
    """
    return list(_errors(module, mixed_precision))


def _errors(module: Module, mixed_precision: bool | None) -> Iterator[ProgramError]:
    mixed = module.is_scheduled if mixed_precision is None else mixed_precision
    # Nearly all programs are right. Only where something is wrong, each place of it is looked for.
    if next(_findings(View(module, mixed, each=False)), None) is not None:
        for finding in _findings(View(module, mixed)):
            yield _placed(module, finding)


def _findings(view: View) -> Iterator[Finding]:
    # Later checks look names up without asking: on a broken module they would fail, not find.
    is_sound = True
    for finding in check_structure(view):
        is_sound = False
        yield finding
    if is_sound:
        for check in CHECKS:
            yield from check(view)


def _placed(module: Module, finding: Finding) -> ProgramError:
    """Return the error with the place of its instruction, of its computation's first one, or of its attribute."""
    computation = finding.computation
    if finding.attribute:
        return ProgramError(finding.error.message, module.where_attribute(finding.attribute))
    if computation is None or not computation.instructions:
        return finding.error
    return ProgramError(
        finding.error.message, module.where(computation, finding.instruction or computation.instructions[0])
    )
