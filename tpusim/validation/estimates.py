"""Kernels of programs beside the compiler's own estimates of their cycles: programs in, a comparison out.

Estimates are no measurements, but there is one for nearly every kernel of every program: classes of kernels that lie
far from them are where a model is first to be looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.analysis.bands import compiler_clock_hz
from tpusim.analysis.estimates import EstimateComparison, compare_estimates, kernel_estimates
from tpusim.errors import ConfigError, TpusimError
from tpusim.files import is_file
from tpusim.hardware.load import resolve_chip_name
from tpusim.ir.module import Module
from tpusim.pipeline.chip_choice import provenance_of
from tpusim.pipeline.stages import load_any, simulate
from tpusim.program.provenance import MEGACORE
from tpusim.validation.rows import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpusim.analysis.estimates import KernelEstimate
    from tpusim.program.provenance import Provenance


def validate_estimates(
    programs: Sequence[str | Path], chip: str | None = None, progress: Callable[[int, int], None] | None = None
) -> EstimateComparison:
    """Return the kernels of programs beside the compiler's estimates, only of programs for ``chip`` if it is named.

    Programs that were not compiled for a TPU that is known, or cannot be run, are left out with the reason.
    ``progress`` is told how many programs of how many are done. Raises ConfigError for a file that is not there, and if
    no program is left.
    """
    for path in programs:
        if not is_file(path):
            raise ConfigError(f"{path}: expected a program, found no such file")
    wanted = resolve_chip_name(chip).removesuffix(MEGACORE) if chip else None
    kernels: list[KernelEstimate] = []
    left_out: dict[str, str] = {}
    count = 0
    for path in in_turn(programs, progress):
        try:
            found = _kernels(path, wanted)
        except TpusimError as error:
            left_out[str(path)] = error.message
        else:
            count += found is not None
            kernels += found or ()
    if not count:
        whys = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise ConfigError(f"expected programs compiled for {chip or 'a TPU'}, found none{f': {whys}' if whys else ''}")
    return compare_estimates(kernels, count, left_out)


def _kernels(path: str | Path, wanted: str | None) -> list[KernelEstimate] | None:
    """Return the kernels of a program, None if it is for another chip than is wanted; raise TpusimError if for none."""
    program = load_any(path)
    made_by = provenance_of(program) if isinstance(program, Module) else program.provenance
    chip = _chip_of(made_by)
    if wanted not in (None, chip.removesuffix(MEGACORE)):
        return None
    # One of many runs, as in every benchmark.
    result = simulate(program, chip, warm=True, allow_overflow=True)
    return list(kernel_estimates(Path(path).name, result.timeline, compiler_clock_hz(made_by, result.chip)))


def _chip_of(made_by: Provenance | None) -> str:
    """Return the chip that a program was compiled for; raise ConfigError, which says why, if it was for none."""
    if made_by is None:
        raise ConfigError("a lowered program that does not say where it is from")
    if made_by.compiler == "none":
        raise ConfigError("not scheduled, so not compiled for a TPU")
    if made_by.compiler != "tpu":
        raise ConfigError("not compiled for a TPU")
    if not made_by.chip:
        raise ConfigError("compiled for a TPU that neither its text, its name nor a .json beside it says")
    return made_by.chip
