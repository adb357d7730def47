"""Where a program comes from, if that is another place than a reader takes for granted."""

from __future__ import annotations

from tpusim.program.provenance import Provenance

_OTHERS = {
    "cpu": "by XLA's backend for CPUs, not for a TPU",
    "gpu": "by XLA's backend for GPUs, not for a TPU",
    "xla": "by XLA for another processor than a TPU",
    "another": "not by a TPU compiler, which would have tiled its arrays",
    "none": "by nobody: the text is not scheduled",
}
_SO = "its fusions, layouts and schedule are not what a TPU would run, and how far the time is off was never measured"


def provenance_text(made_by: Provenance | None, chip: str) -> str:
    """Return what made a program that runs on ``chip``; empty if it was compiled for that chip."""
    if made_by is None:
        return "by a compiler that the lowered program does not name"
    if made_by.compiler == "tpusim" and not made_by.retiled_for:
        return f"by tpusim for {made_by.chip}{'' if made_by.chip == chip else _not_for(chip)}"
    if made_by.retiled_for:
        of_whom = f"for {made_by.chip or 'a TPU'}, its tiles chosen anew by tpusim for {made_by.retiled_for}"
        return f"{of_whom}{'' if made_by.retiled_for == chip else _not_for(chip)}"
    if made_by.compiler != "tpu":
        return f"{_OTHERS[made_by.compiler]}: {_SO}"
    if made_by.is_for(chip):
        return ""
    allowed = _listed(made_by.possible)
    if made_by.stated and not made_by.chip.startswith(made_by.stated):
        shown = _listed(made_by.signs, "and")
        return f"for {allowed or 'no chip that is known'}, though its name says {made_by.stated}: it has {shown}"
    if not made_by.chip:
        return f"for a chip that neither its name nor a .json beside it says; by its text for {allowed}"
    return f"for {made_by.chip}{_not_for(chip)}"


def _not_for(chip: str) -> str:
    anew = "--schedule compiled or retiled makes them anew"
    return f": tiles, placement and schedule are not those that {chip} would get ({anew})"


def _listed(names: tuple[str, ...], last: str = "or") -> str:
    """Return names as a sentence lists them."""
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
