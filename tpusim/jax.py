"""From a JAX function to a program, without a TPU: ``pip install 'tpusim[jax]'``.

``compile_for`` gives what the TPU compiler makes of it: JAX compiles ahead of time for a slice that is not there
(``jax.experimental.topologies``, with libtpu on Linux); ``tune`` ranks what it makes of several candidates.
``lower_for`` gives what JAX hands to that compiler, on any machine that JAX runs on.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tpusim.errors import ConfigError
from tpusim.frontends.kept import kept_text
from tpusim.frontends.memory_kinds import lost_moves, memory_spaces, with_marks
from tpusim.frontends.partition import partitioned_text
from tpusim.frontends.xla import module_text
from tpusim.hardware.load import load_chip, resolve_chip_name
from tpusim.hardware.pod import parse_topology
from tpusim.pipeline.answers.tuning import ranked
from tpusim.report.terminal.progress import elapsed
from tpusim.semantics.marks import marked_with_order
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tpusim.ir.module import Module
    from tpusim.pipeline.answers.shown import RankedPrograms

_SMALLEST_SLICES = {
    "v2": "v2:2x2",
    "v3": "v3:2x2",
    "v4": "v4:2x2x1",
    "v5e": "v5e:2x2",
    "v5p": "v5p:2x2x1",
    "v6e": "v6e:2x2",
    "v7x": "tpu7x:2x2x1",
}
"""By chip the slice that JAX is asked for: one host, as the names of Google Cloud have it."""

# Without these libtpu asks a metadata server for its name, which fails after minutes outside of Google Cloud, and locks
# out other processes, as if there were a TPU to share.
_NO_TPU_HERE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
# One device: there is no order of several.
_ALONE = re.compile(r"mhlo\.num_partitions = 1 : i32, mhlo\.num_replicas = 1 : i32")
# What JAX says where Pallas asks which TPU there is, and finds the CPU.
_NO_KIND = "Unsupported TPU device kind: cpu"


def compile_for(function: Callable[..., Any], *arguments: Any, topology: str = "v5e", **keywords: Any) -> Module:
    """Return the program that the TPU compiler makes of a JAX function, ready for ``tpusim.simulate``.

    ``arguments`` and ``keywords`` are those of a call, as arrays or ``jax.ShapeDtypeStruct`` (of which only shape, type
    and sharding count), in any pytree; an array that devices of this machine share is refused, since they are not those
    of the slice. ``function`` may be jitted already, with its own options. ``topology`` is a chip
    (``v5e``) or a slice (``v5e:2x4``, ``tpu7x:2x2x1``); what has no sharding goes to its first device. For a mesh over
    all of them take ``devices_of``: the module keeps in which order the mesh has them. What was compiled is kept for
    the next time, in the folder that the variable ``TPUSIM_CACHE`` names; an empty name keeps nothing.

    Raises ConfigError if JAX or libtpu is missing or does not know the slice, or if the compiler fails; what JAX says
    of a function that it cannot trace stays as it is.
    """
    jax = _jax()
    first = devices_of(topology)[0]
    alone = jax.sharding.SingleDeviceSharding(first)
    shapes = jax.tree.map(lambda leaf: _described(leaf, alone), (arguments, keywords))
    lowered, name = _lowered(function, _chip_of(topology), *shapes), _name_of(function)
    order = tuple(device.id for device in _mesh_devices(shapes))
    key = _key(lowered, order, topology)

    def make() -> str:
        with elapsed(f"compiling {name} for {topology}"):
            return _compiled_text(lowered, name, topology)

    module = _module(function, _chip_of(topology), kept_text(key, make) if key else make())
    return _placed(module, order, topology)


def tune(
    function_of: Callable[[Any], Callable[..., Any]],
    candidates: Iterable[Any],
    *arguments: Any,
    topology: str = "v5e",
    **keywords: Any,
) -> RankedPrograms:
    """Return candidates ranked by how long the programs take that the TPU compiler makes of them, without a TPU.

    ``function_of(candidate)`` is the function to compile for one: with these block sizes, say. ``arguments``,
    ``topology`` and ``keywords`` are those of ``compile_for``. A candidate that fails, when JAX traces it, in the
    compiler (its blocks do not fit into VMEM) or since it does not fit the chip, stands last, with the reason.
    """
    programs: list[tuple[Any, Module | Exception]] = []
    for candidate in candidates:
        try:
            program = compile_for(function_of(candidate), *arguments, topology=topology, **keywords)
            programs.append((candidate, program))
        # JAX and the user's own code raise what they like; the other candidates may do.
        except Exception as error:
            programs.append((candidate, error))
    return ranked(programs, _chip_of(topology))


def lower_for(function: Callable[..., Any], *arguments: Any, chip: str = "v5e", **keywords: Any) -> Module:
    """Return the program that JAX hands to the TPU compiler for a function: not scheduled yet, without layouts.

    Takes JAX on the CPU alone; libtpu is not asked. What a mesh of CPU devices (``jax_num_cpu_devices``) cuts up, by
    shardings of arguments, constraints or ``jax.shard_map``, becomes what each device runs: XLA partitions it. An array
    that several devices have keeps its sharding. CPU
    device n stands for device n of the slice, by coordinates: a mesh of them in another order keeps that. On several
    hosts ``jax.devices()`` lists them otherwise (``tpusim.with_device_order(module, "hosts")``).

    ``arguments`` and ``keywords`` are those of a call, arrays or ``jax.ShapeDtypeStruct`` in any pytree; what is
    neither stays as it is, so that a function that is jitted already may have static ones. ``chip`` is the one to run
    on if the run does not say. Raises ConfigError if JAX is missing or no chip has that name, UnsupportedError if XLA
    does not partition it; what JAX says of a function that it cannot trace stays as it is.
    """
    chip = resolve_chip_name(chip)
    shapes = _jax().tree.map(_shape_of, (arguments, keywords))
    lowered = _lowered(function, chip, *shapes)
    given = lowered.compiler_ir("stablehlo")
    text = partitioned_text(given, _name_of(function))
    marks = lost_moves(text, str(given)) if text else memory_spaces(given)
    text = with_marks(text or module_text(lowered.compiler_ir("hlo").get_hlo_module(), _name_of(function)), marks)
    module, ids = _module(function, chip, text), [device.id for device in _mesh_devices(shapes)]
    # In the order of their numbers devices are as JAX itself lays them, which a run takes for granted.
    if ids == sorted(ids) or len(ids) != module.device_count:
        return module
    order = [sorted(ids).index(number) for number in ids]
    return structs.replace(module, attributes=marked_with_order(module.attributes, order))


def _lowered(function: Callable[..., Any], chip: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return a function as JAX lowers it for a TPU, which need not be there."""
    jax = _jax()
    jitted: Any = function if hasattr(function, "trace") else jax.jit(function)
    try:
        return jitted.trace(*arguments, **keywords).lower(lowering_platforms=("tpu",))
    except ValueError as error:
        if _NO_KIND not in str(error):
            raise
    # Some operations of Pallas, as // of a program id, ask which TPU there is. Entered for these alone: with a mesh
    # around them JAX may lower others differently.
    try:
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=_device_of(chip))):
            return jitted.trace(*arguments, **keywords).lower(lowering_platforms=("tpu",))
    except ValueError as error:
        if _NO_KIND not in str(error):
            raise
        hint = "write jax.lax.div(a, b) for a // b in kernels and index maps, or take compile_for with devices_of"
        raise ConfigError(
            f"{_name_of(function)}: a kernel asks which TPU it is on, and its mesh has CPUs: {hint}"
        ) from error


def _device_of(chip: str) -> Any:
    """Return a device of a chip that need not be there, under the name that JAX has for its kind."""
    kind = "TPU " + chip.partition("-")[0]
    return _jax().sharding.AbstractDevice(
        device_kind=kind.replace(" v7x", "7x"), num_cores=load_chip(chip).cores_per_device, platform="tpu"
    )


def _mesh_devices(shapes: Any) -> tuple[Any, ...]:
    """Return the devices of the arguments' mesh, in its order; nothing where they have none."""
    shardings = (getattr(leaf, "sharding", None) for leaf in _jax().tree.leaves(shapes))
    meshes = (getattr(sharding, "mesh", None) for sharding in shardings)
    # An abstract mesh has none; of several JAX wants the same devices in the same order.
    return next((tuple(mesh.devices.flat) for mesh in meshes if isinstance(mesh, _jax().sharding.Mesh)), ())


def _placed(module: Module, order: tuple[int, ...], topology: str) -> Module:
    """Return a module with the slice that it was compiled for, and which device of it each of its own is.

    Ids count the devices of a slice by their coordinates, those of a chip together.
    """
    if not order:
        return module
    numbers = {id_: number for number, id_ in enumerate(sorted(device.id for device in devices_of(topology)))}
    if len(order) != len(numbers):
        return module
    name = topology if ":" in topology else _SMALLEST_SLICES[_chip_of(topology)]
    devices = [numbers[id_] for id_ in order]
    return structs.replace(module, attributes=marked_with_order(module.attributes, devices, name))


def _key(lowered: Any, order: tuple[int, ...], topology: str) -> list[str]:
    """Return all that a compiled text depends on; nothing where not all is known."""
    try:
        # With the places in the source, which the compiled text has as well.
        text = lowered.as_text(debug_info=True)
        versions = [version(name) for name in ("jax", "jaxlib", "libtpu")]
        # Those of jax.jit, and of JAX as a whole: no public name gives the first.
        options = [str(lowered._lowering._compiler_options_kvs), str(sorted(_jax().config.values.items()))]
    # What is no function of JAX, a library under another name, or a JAX that keeps its options elsewhere.
    except (AttributeError, PackageNotFoundError):
        return []
    if not order and not _ALONE.search(text):
        return []
    flags = (os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"))
    # The text is the same in whichever order the devices of a mesh are, and the program is not.
    return [text, topology, *([str(list(order))] if order else []), *options, *flags, *versions]


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", "function"))


def _module(function: Callable[..., Any], chip: str, text: str) -> Module:
    # The chip in the name is where a run finds it.
    return parse_module(SourceText(f"{_name_of(function)}.{chip}.hlo.txt", text))


def _compiled_text(lowered: Any, name: str, topology: str) -> str:
    """Return what the compiler makes of a lowered function; raise ConfigError if it fails."""
    try:
        (program,) = lowered.compile().runtime_executable().hlo_modules()
        # Not as_text, which leaves out large constants: those that a Pallas kernel looks up say what it skips.
        return module_text(program, name)
    # Of a function that does not fit the chip, say; the first line is the reason, the rest the compiler's own stack.
    except _jax().errors.JaxRuntimeError as error:
        reason = (str(error).splitlines() or [repr(error)])[0]
        raise ConfigError(f"{name}: JAX has no compiled text for {topology}: {reason}") from error


def devices_of(topology: str = "v5e") -> list[Any]:
    """Return the devices of a slice that is not there, for ``jax.sharding.Mesh`` and its kind; errors as above."""
    jax = _jax()
    name = _SMALLEST_SLICES.get(_chip_of(topology)) if ":" not in topology else topology
    try:
        with _alone():
            return list(jax.experimental.topologies.get_topology_desc(name, platform="tpu").devices)
    # JAX raises whatever its backend gives it; the first line says which name it did not take.
    except Exception as error:
        reason = (str(error).splitlines() or [repr(error)])[0]
        hint = "" if find_spec("libtpu") else " (libtpu is not installed: pip install 'tpusim[jax]')"
        raise ConfigError(f"{topology}: JAX cannot compile for this slice{hint}: {reason}") from error


def _jax() -> Any:
    """Return the module, with the parts that it does not load by itself."""
    try:
        import jax
        import jax.experimental.topologies
    except ImportError as error:
        raise ConfigError("tpusim.jax needs JAX (and compile_for libtpu): pip install 'tpusim[jax]'") from error
    return jax


def _chip_of(topology: str) -> str:
    """Return the chip that a topology's name begins with."""
    chip = resolve_chip_name(parse_topology(topology).chip if ":" in topology else topology)
    if chip not in _SMALLEST_SLICES:
        raise ConfigError(f"{topology}: expected one of {', '.join(_SMALLEST_SLICES)}, found {chip}")
    return chip


def _described(leaf: Any, alone: Any) -> Any:
    """Return an argument's shape, type and place; numbers of Python stay what they are."""
    jax = _jax()
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        leaf = jax.numpy.asarray(leaf)
    if shared := _shared(leaf):
        found = f"{leaf.dtype}{list(leaf.shape)} on {len(shared.device_set)} devices of this machine"
        hint = "give a jax.ShapeDtypeStruct with a sharding on tpusim.jax.devices_of(topology), or take lower_for"
        raise ConfigError(f"expected arguments that the devices of the slice share, found an array {found}: {hint}")
    given = leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=given or alone)


def _shape_of(leaf: Any) -> Any:
    """Return the shape and type of an array, which may be large, and how devices share it; anything else as it is."""
    jax = _jax()
    is_array = hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, jax.ShapeDtypeStruct)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=_shared(leaf)) if is_array else leaf


def _shared(leaf: Any) -> Any:
    """Return the sharding of an array that several devices have; on which of them one lies alone is no matter."""
    jax = _jax()
    return leaf.sharding if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1 else None


@contextmanager
def _alone() -> Iterator[None]:
    """Keep libtpu from looking for a TPU for a while; what the user has set stays."""
    added = {key: value for key, value in _NO_TPU_HERE.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]
