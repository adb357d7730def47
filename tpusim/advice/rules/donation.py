"""Arguments whose memory results could take over."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tpusim.advice.trials import SHOWN, Case, Trial, advises
from tpusim.errors import TpusimError
from tpusim.ir.attributes import ParameterAlias
from tpusim.ir.module import Module
from tpusim.pipeline.stages import memory
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape, TupleShape


@advises("donation")
def donation(case: Case) -> Iterator[Trial]:
    """Propose to donate arguments of the shape of results, where the peak of HBM is then lower."""
    module = case.module
    if module is None or not module.is_scheduled:
        return
    pairs = _pairs(module)
    if not pairs:
        return
    aliases = (*module.attributes.get("input_output_alias", ()), *(alias for alias, _ in pairs))
    donated = dataclasses.replace(module, attributes=module.attributes | {"input_output_alias": aliases})
    try:
        after = memory(donated, case.chip, topology=case.topology).use.peak_hbm_bytes
    except TpusimError:
        return
    saved = case.result.summary.memory.peak_hbm_bytes - after
    if saved > 0:
        names = [name for _, name in pairs]
        yield Trial(
            what=f"{len(pairs)} results have the shape of arguments that are not donated",
            change=f"donate them: jax.jit(..., donate_argnums=...) of {', '.join(names[:SHOWN])}",
            ops=tuple(names[:SHOWN]),
            source="",
            alternative=None,
            saved_bytes=saved,
        )


def _pairs(module: Module) -> list[tuple[ParameterAlias, str]]:
    """Return which results could lie in which arguments, the names of these beside them; each is taken once."""
    known = module.attributes.get("input_output_alias", ())
    results, given = {alias.output_index for alias in known}, {alias.parameter for alias in known}
    root = module.entry.root.shape
    parts = enumerate(root.elements) if isinstance(root, TupleShape) else [(-1, root)]
    found = []
    for number, part in sorted(parts, key=lambda item: -_size(item[1])):
        index = (number,) if number >= 0 else ()
        fits = (p for p in module.entry.parameters if p.shape == part and p.immediate not in given)
        parameter = next(fits, None)
        if index not in results and parameter is not None and _size(part):
            assert isinstance(parameter.immediate, int)
            given.add(parameter.immediate)
            found.append((ParameterAlias(index, parameter.immediate), parameter.name))
    return found


def _size(shape: object) -> int:
    return physical_bytes(shape) if isinstance(shape, ArrayShape) else 0
