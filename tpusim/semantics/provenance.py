"""Which compiler left a text, and for which chips: from layouts, memory spaces and what backends note for themselves.

XLA's text names neither compiler nor chip, and ``is_scheduled=true`` is what every backend writes. But only the TPU
compiler tiles layouts, and all of its layouts are tiled, scalars too. What tells one chip from another is data:
``configs/signs.toml``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import msgspec

from tpusim.hardware.load import chip_names, read_config, shipped_value
from tpusim.ir.attributes import BackendConfig
from tpusim.ir.module import Instruction, Module
from tpusim.program.provenance import BOOSTED, MEGACORE, Compiler, Provenance
from tpusim.semantics.marks import COMPILED_FOR, RETILED_FOR, mark_of
from tpusim.shapes.layout import Layout
from tpusim.shapes.shape import leaves

_MARKS: dict[Compiler, tuple[str, ...]] = {
    "cpu": ('"outer_dimension_partitions"', '"__ynn_fusion"', '"onednn_', "__onednn$", "__xla_cpu", "__cpu$"),
    "gpu": ('"fusion_backend_config"', '"operation_queue_id"', "__cublas$", "__cudnn$", "__triton", "__gpu$"),
}
"""What other backends write into ``backend_config`` or name the targets of custom calls."""


_OF_JAX = ("allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output")
"""What JAX asks of XLA in every compilation: XLA's text says it in its first line, and nobody writes it by hand."""

_NEWER = '"buffering_level"'


class Sign(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something in a text that only programs for some chips show: words in a ``backend_config``, a memory, a tile."""

    shows: str
    chips: tuple[str, ...]
    source: str
    backend_config: str = ""
    memory_space: int = 0
    tile: tuple[int, ...] = ()


def read_provenance(module: Module, stated: str = "", version: str = "") -> Provenance:
    """Return what made a module; ``stated`` is the chip that its name or the facts beside it say, if any."""
    if not module.is_scheduled:
        return Provenance(compiler="none", stated=stated, version=version)
    ours = mark_of(module, COMPILED_FOR)
    if ours:
        return Provenance(compiler="tpusim", chip=ours, possible=(ours,), stated=stated, version=version)
    found = _by_signs(module, stated, version)
    return msgspec.structs.replace(found, retiled_for=mark_of(module, RETILED_FOR))


def _by_signs(module: Module, stated: str, version: str) -> Provenance:
    """Return which compiler that is none of ours made a scheduled module."""
    instructions = [instruction for computation in module.unlike for instruction in computation.instructions]
    # Shapes repeat thousands of times, and know their hash.
    shapes = set().union(*[computation.shapes.values() for computation in module.unlike])
    layouts = {leaf.layout for shape in shapes for leaf in leaves(shape) if leaf.layout is not None}
    configs = {str(i.attributes["backend_config"]) for i in instructions if "backend_config" in i.attributes}
    if not any(layout.tiles for layout in layouts):
        targets = {str(i.attributes.get("custom_call_target", "")) for i in instructions}
        notes = configs | targets
        marked = (name for name, marks in _MARKS.items() if any(mark in note for note in notes for mark in marks))
        unmarked: Compiler = "xla" if _is_compiled_by_xla(module, instructions, layouts) else "another"
        return Provenance(compiler=next(marked, unmarked), stated=stated, version=version)
    shown = [sign for sign in _signs().values() if _shows(sign, layouts, "\n".join(configs))]
    # Few configurations stand on many instructions: each is asked once.
    scoped_bytes = max((BackendConfig.decode(config).scoped_vmem_end_bytes for config in configs), default=0)
    names = [name for name in chip_names() if not name.endswith(BOOSTED)]
    possible = [name for name in names if all(name in sign.chips for sign in shown)]
    possible = [name for name in possible if scoped_bytes <= shipped_value(name, "vmem.capacity_bytes")]
    # A name says v4 of both ways to program it; and what allows one chip only has named it.
    named = [name for name in (stated, f"{stated}{MEGACORE}") if name in possible]
    chip = (named or possible)[0] if named or len(possible) == 1 else ""
    signs = tuple(sign.shows for sign in shown)
    return Provenance(compiler="tpu", chip=chip, possible=tuple(possible), signs=signs, stated=stated, version=version)


def _is_compiled_by_xla(module: Module, instructions: Iterable[Instruction], layouts: set[Layout]) -> bool:
    """Return whether XLA has compiled a scheduled module, whatever the processor: a backend may leave no note.

    Before any compiler JAX's text has no fusions; and a text may have been printed without layouts.
    """
    asked = any(key in module.attributes for key in _OF_JAX)
    return asked and bool(layouts) and any(one.opcode == "fusion" for one in instructions)


def keeps_outputs_apart(module: Module) -> bool:
    """Return whether what made a module lets no temporary into the memory of outputs: libtpu 0.0.52, and tpusim as it.

    libtpu 0.0.52 also counts temporaries otherwise, and notes for each kernel how it is buffered, which 0.0.41 to
    0.0.45 do not. Of 60 of its programs all show that, and 58 need the bytes that it states; of 88 older ones none
    does.
    """
    if mark_of(module, COMPILED_FOR):
        return True
    configs = (one.attributes.get("backend_config") for computation in module.unlike for one in computation)
    return any(_NEWER in str(config) for config in configs if config is not None)


@cache
def _signs() -> dict[str, Sign]:
    return msgspec.convert(read_config("signs.toml"), dict[str, Sign])


def _shows(sign: Sign, layouts: set[Layout], configs: str) -> bool:
    if sign.backend_config:
        return sign.backend_config in configs
    if sign.tile:
        return any(layout.tiles[:1] == (sign.tile,) for layout in layouts)
    return any(layout.memory_space == sign.memory_space for layout in layouts)
