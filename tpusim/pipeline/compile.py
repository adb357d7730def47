"""A program compiled by tpusim: the scheduled module, and what compiling it took."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from tpusim.analysis.summary import Summary
from tpusim.hardware.chip import Chip
from tpusim.ir.module import Module
from tpusim.pipeline.chip_choice import check_compiler, choose_chip, provenance_of
from tpusim.pipeline.schedules import front_end_form, placed
from tpusim.pipeline.stages import load_module, simulate
from tpusim.pipeline.targets import target_of
from tpusim.program.compilation import Compilation, PassFigures
from tpusim.semantics.contents import contents
from tpusim.semantics.verify.module import verify_module

if TYPE_CHECKING:
    from tpusim.compiler.target import Target
    from tpusim.draft import Draft


class Compiled(NamedTuple):
    """A compiled module, the chip that it is for, and how it was compiled."""

    module: Module
    chip: Chip
    compilation: Compilation


def compile(
    program: Module | str | Path,
    chip: Chip | str | None = None,
    *,
    stop_after: str = "",
    overrides: Mapping[str, Any] | None = None,
) -> Module:
    """Return the module that runs on a chip, compiled by tpusim; ``stop_after`` a pass, what that pass made.

    ``program`` is what a front end makes; of a scheduled module the compiler's work is undone first. The other
    arguments are those of ``simulate``. Raises UnsupportedError for what has to be partitioned first, or cannot be
    undone.
    """
    loaded, target = _prepared(program, chip, overrides)
    return _compile(loaded, target, stop_after)


def compile_program(
    program: Module | str | Path,
    chip: Chip | str | None = None,
    *,
    stop_after: str = "",
    overrides: Mapping[str, Any] | None = None,
) -> Compiled:
    """Return what ``compile`` does, with the chip and what the passes took and did."""
    loaded, target = _prepared(program, chip, overrides)
    record = _PassRecord()
    module = _compile(loaded, target, stop_after, record)
    compilation = Compilation(
        program=loaded.name,
        chip=target.chip.name,
        passes=tuple(record.passes),
        before=contents(loaded),
        after=contents(module),
        notes=tuple(target.notes),
    )
    return Compiled(module, target.chip, compilation)


def _prepared(
    program: Module | str | Path, chip: Chip | str | None, overrides: Mapping[str, Any] | None
) -> tuple[Module, Target]:
    """Return the module to compile, and what it is compiled for."""
    loaded = load_module(program)
    made_by = provenance_of(loaded)
    check_compiler(loaded, made_by)
    return loaded, target_of(choose_chip(loaded, made_by, chip=chip, overrides=overrides))


def _compile(module: Module, target: Target, stop_after: str, after: _PassRecord | None = None) -> Module:
    from tpusim.compiler.passes import compile_module

    with placed(module):
        plain = front_end_form(module)
        if after is not None:
            after.begin()
        compiled = compile_module(plain, target, stop_after, after)
    # What it says would be a fault of ours; better here than as a wrong time.
    verify_module(compiled)
    return compiled


def compiled_run(found: Compiled) -> Summary | None:
    """Return the numbers of a run of what was compiled, None if the passes stopped before it had a schedule."""
    return simulate(found.module, found.chip, allow_overflow=True).summary if found.module.is_scheduled else None


class _PassRecord:
    """Takes the figures of each pass after it, called with its name and the draft as it left it."""

    def __init__(self) -> None:
        self.passes: list[PassFigures] = []
        self._since = 0.0

    def begin(self) -> None:
        """Let the next pass begin now."""
        self._since = process_time()

    def __call__(self, name: str, draft: Draft) -> None:
        """Add the pass that has just ended."""
        took = process_time() - self._since
        now = contents(draft.write())
        counts = {field: getattr(now, field) for field in ("instructions", "kernels", "hbm_bytes")}
        self.passes.append(PassFigures(name=name, cpu_seconds=took, **counts))
        # What it takes to count is no part of a pass.
        self.begin()
