"""What the attributes of an instruction hold, as frozen values.

Attributes that are long and seldom asked for, ``metadata`` and ``backend_config`` among them, stay the text that they
were (``Raw``) until they are decoded with ``BackendConfig.decode`` or ``Metadata.decode``.
"""

from __future__ import annotations

import json
import re
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpusim.shapes.shape import Shape


# Strings, not wrappers: they print as they were written, and their type says what the word stands for.
class Raw(str):
    """The text of an attribute's value that is not decoded yet."""

    __slots__ = ()


class Symbol(str):
    """A bare word as an attribute's value: an enumerator (``kLoop``, ``EQ``) or a flag of the text format."""

    __slots__ = ()


class InstructionName(str):
    """The name, without ``%``, of an instruction that an attribute points at."""

    __slots__ = ()


class ComputationName(str):
    """The name, without ``%``, of a computation that an instruction calls."""

    __slots__ = ()


class WindowDimension(msgspec.Struct, frozen=True, gc=False):
    """One dimension of a window, in elements: XLA's ``WindowDimension``."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1
    reversal: bool = False


class Window(msgspec.Struct, frozen=True):
    """``window={size=2x2 stride=1x1 pad=0_1x0_1 lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}``."""

    dimensions: tuple[WindowDimension, ...] = ()


class ConvolutionLabels(msgspec.Struct, frozen=True):
    """``dim_labels=b01f_01io->b01f``: one character per dimension of lhs, rhs and result; digits are spatial."""

    lhs: str
    rhs: str
    output: str


class PaddingDimension(msgspec.Struct, frozen=True, gc=False):
    """``padding=lo_hi_interior``: elements added (or, if negative, dropped) in one dimension."""

    low: int
    high: int
    interior: int = 0


class SliceDimension(msgspec.Struct, frozen=True, gc=False):
    """``[start:limit:stride]`` of a slice."""

    start: int
    limit: int
    stride: int = 1


class ReplicaGroups(msgspec.Struct, frozen=True):
    """Groups of device ids, expanded, and the text form that they were written in (``text`` prints them again)."""

    groups: tuple[tuple[int, ...], ...]
    text: str = ""


class OperandAlias(msgspec.Struct, frozen=True):
    """``output_to_operand_aliasing``: a part of the result lives in the buffer of a part of an operand.

    An index is the way through nested tuples; ``()`` is the whole.
    """

    output_index: tuple[int, ...]
    operand: int
    operand_index: tuple[int, ...] = ()


class ParameterAlias(msgspec.Struct, frozen=True):
    """``input_output_alias`` of a module: a part of the result shares a part of a parameter's buffer.

    It must if ``must_alias``, otherwise it may.
    """

    output_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...] = ()
    must_alias: bool = False


class BufferDonor(msgspec.Struct, frozen=True):
    """``buffer_donor`` of a module: a part of a parameter whose buffer the program may use as it likes."""

    parameter: int
    parameter_index: tuple[int, ...] = ()


class ComputationLayout(msgspec.Struct, frozen=True):
    """``entry_computation_layout`` of a module: how the host hands parameters over and wants the result."""

    parameters: tuple[Shape, ...]
    result: Shape


class WindowConfig(msgspec.Struct, frozen=True):
    """The compiler's tiling of one kernel; bounds count blocks of (8,128) elements in the two minor dimensions."""

    kernel_window_bounds: tuple[int, ...] = ()
    output_window_bounds: tuple[int, ...] = ()
    input_window_bounds: tuple[int, ...] = ()
    iteration_bounds: tuple[int, ...] = ()
    estimated_cycles: int = 0
    """What the compiler thinks that the kernel takes; 0 where it does not know."""


class CostEstimate(msgspec.Struct, frozen=True, gc=False):
    """What a hand-written kernel says that one call takes (JAX, ``pallas.CostEstimate``)."""

    flops: int = 0
    transcendentals: int = 0
    bytes_accessed: int = 0


class BackendConfig(msgspec.Struct, frozen=True, dict=True):
    """What tpusim reads of a TPU ``backend_config``; ``fields`` is the whole JSON object.

    What is asked of every kernel is read out of it once: many instructions share one configuration.
    """

    # msgspec copies an empty default, so that instances do not share it.
    fields: dict[str, Any] = {}

    @classmethod
    @lru_cache(maxsize=4096)
    def decode(cls, text: str) -> BackendConfig:
        """Decode the text of a ``backend_config``: a JSON object, or a string that holds one.

        Anything else gives an empty one, as XLA leaves the meaning to each backend.
        """
        try:
            value = json.loads(text)
            # XLA prints a string of JSON or, for newer backends, the object itself.
            value = json.loads(value) if isinstance(value, str) else value
        # Brackets nested deep enough exhaust Python's stack rather than being wrong JSON.
        except (ValueError, RecursionError):
            return cls()
        return cls(value) if isinstance(value, dict) else cls()

    @cached_property
    def window_config(self) -> WindowConfig | None:
        """The kernel's tiling, if the compiler stated one."""
        config = self._object("window_config")
        if not config:
            return None
        # Those of the sparse cores' tiles count elements, and are about no register.
        is_sparse = self.fields.get("compute_type") == "COMPUTE_TYPE_TILE"
        bounds = {key: () if is_sparse else _integers(config.get(key)) for key in _BOUNDS}
        # Blocks of nothing cut nothing.
        bounds |= {key: () for key in _WINDOW_BOUNDS if min(bounds[key], default=1) < 1}
        # More trips than 64 bits count are none of a compiler's.
        bounds |= {key: () for key in _BOUNDS if prod(bounds[key]) > _LARGEST}
        cycles = max(0, _integer(config.get("estimated_cycles")) or 0)
        # What libtpu 0.0.52 writes for TPU7x where it does not know; added up it would be thousands of years.
        return WindowConfig(estimated_cycles=0 if cycles == _LARGEST else cycles, **bounds)

    @property
    def known_trip_count(self) -> int | None:
        """How often a ``while`` runs its body, if the compiler knows."""
        stated = _integer(self._object("known_trip_count").get("n"))
        # Less than none is no compiler's, and says nothing.
        return None if stated is None or stated < 0 else stated

    @cached_property
    def scoped_vmem_bytes(self) -> int:
        """VMEM that the kernel uses beyond its operands and results, in bytes."""
        # What is stated as used ends there, counted from the bottom of the memory: of programs for v7x whose scoped
        # memory begins at 32 MiB, kernels that need none state 32 MiB, and none states less.
        return max(0, self.scoped_vmem_end_bytes - self._in_vmem("scoped_memory_configs", "offset"))

    @cached_property
    def scoped_vmem_end_bytes(self) -> int:
        """Where the VMEM ends that the kernel uses beyond its operands and results; they may lie below."""
        return self._in_vmem("used_scoped_memory_configs", "size")

    @property
    def scoped_vmem_limit_bytes(self) -> int:
        """VMEM that a hand-written kernel asks to be given (JAX, ``vmem_limit_bytes``); 0 where it does not."""
        return self._in_vmem("scoped_memory_configs", "size")

    def _in_vmem(self, name: str, key: str) -> int:
        """Return the sum of a number over what a list states of VMEM."""
        stated = self.fields.get(name)
        items = [item for item in stated if isinstance(item, dict)] if isinstance(stated, list) else []
        # Compilers write the numbers of memory spaces as text, JAX as numbers; 1 is what a layout writes S(1).
        found = sum(max(0, _integer(item.get(key)) or 0) for item in items if str(item.get("memory_space")) == "1")
        return min(found, _LARGEST)

    @cached_property
    def aliasing_operands(self) -> tuple[tuple[int, ...], ...]:
        """Arrays that the compiler has given one place: numbers of operands, followed by those of results."""
        lists = self._object("aliasing_operands").get("lists")
        items = [item for item in lists if isinstance(item, dict)] if isinstance(lists, list) else []
        return tuple(_integers(item.get("indices")) for item in items)

    @property
    def convolution_emitter(self) -> str:
        """What the compiler calls its way of computing a kernel's convolution; empty where it says nothing."""
        emitter = self._object("convolution_algorithm_config").get("emitter")
        return emitter if isinstance(emitter, str) else ""

    @property
    def loops_of_groups(self) -> tuple[int, int] | None:
        """Which loops go over groups and over rows, where those without a row of the group are skipped."""
        mask, window = self._object("mask_aggregator_config"), self.window_config
        dims = _integers(mask.get("mask_dim_to_iteration_index"))
        if mask.get("iteration_skipper_mode") != "ITERATION_SKIPPER_MODE_GROUP_STARTS" or window is None:
            return None
        found = [at for at in dims if 0 <= at < len(window.iteration_bounds)]
        return (found[0], found[1]) if len(found) == 2 else None

    @property
    def megacore_split_dim(self) -> int | None:
        """The dimension of the loop nest that two cores share, or None."""
        return _integer(self._object("megacore_config").get("megacore_split_dim"))

    @property
    def cost_estimate(self) -> CostEstimate | None:
        """What a hand-written kernel says that it takes, if it does."""
        stated = self._object("custom_call_config").get("cost_estimate")
        if not isinstance(stated, dict) or not stated:
            return None
        return CostEstimate(*(max(0, _integer(stated.get(key)) or 0) for key in CostEstimate.__struct_fields__))

    @property
    def kernel_body(self) -> str:
        """The code of a hand-written kernel, encoded; empty where there is none."""
        body = self._object("custom_call_config").get("body")
        return body if isinstance(body, str) else ""

    @property
    def is_for_sparse_cores(self) -> bool:
        """Whether a hand-written kernel is code of the sparse cores (JAX, ``device_type``)."""
        return self._object("custom_call_config").get("device_type") == "DEVICE_TYPE_SPARSECORE"

    @property
    def known_index_ones(self) -> tuple[int, ...]:
        """By dimension, the bits that the compiler knows to be set in where a dynamic slice or its update begins."""
        known = self._object("indices_config").get("index_known_bits")
        items = [item for item in known if isinstance(item, dict)] if isinstance(known, list) else []
        return tuple(_integer(item.get("ones")) or 0 for item in items)

    def _object(self, key: str) -> dict[str, Any]:
        """Return an object in the configuration; one that is absent, or is no object, is empty."""
        value = self.fields.get(key)
        return value if isinstance(value, dict) else {}


_LARGEST = 2**63 - 1
_WINDOW_BOUNDS = ("kernel_window_bounds", "output_window_bounds", "input_window_bounds")
_BOUNDS = (*_WINDOW_BOUNDS, "iteration_bounds")


# No more digits than 64 bits have: Python refuses to convert thousands of them.
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def _integer(value: Any) -> int | None:
    """Return a number of 64 bits, or None for anything else: the configuration is the compiler's own and may change.

    The JSON form of protocol buffers writes 64-bit integers as strings.
    """
    number = _integer_in(value) if isinstance(value, str) else value
    is_number = isinstance(number, int) and not isinstance(number, bool) and abs(number) <= _LARGEST
    return number if is_number else None


# The bounds of tiles are the same few numbers, thousands of times.
@lru_cache(maxsize=1024)
def _integer_in(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def _integers(values: Any) -> tuple[int, ...]:
    """Return a list of numbers, or none if any of them is something else."""
    numbers = [_integer(value) for value in values] if isinstance(values, list) else []
    return () if None in numbers else tuple(numbers)  # type: ignore[arg-type]


class Metadata(msgspec.Struct, frozen=True):
    """Where an instruction came from. ``stack_frame_id`` points into the module's tables."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    stack_frame_id: int = 0

    @classmethod
    @lru_cache(maxsize=4096)
    def decode(cls, text: str) -> Metadata:
        """Decode the text between the braces of ``metadata={...}``; unknown fields are passed over."""
        known: dict[str, Any] = {
            key: _ESCAPE.sub(_unescaped, value[1:-1]) if value[0] == '"' else int(value)
            for key, value in _METADATA_FIELD.findall(text)
            if key in cls.__struct_fields__
        }
        return cls(**known)


# A string is matched whole, so that an equals sign inside an op_name begins no field.
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|((?:\\[0-3][0-7]{2})++)|\\(.)")


def _unescaped(found: re.Match[str]) -> str:
    """Return what an escape of C stands for: a letter, bytes of UTF-8 (as XLA writes what is not ASCII), or itself."""
    short, long, octets, other = found.groups()
    if octets:
        return bytes(int(octet, 8) for octet in octets.split("\\")[1:]).decode(errors="replace")
    if other:
        return str(other)
    # In bytes, since some numbers are no letters.
    return int(short or long, 16).to_bytes(4, "little").decode("utf-32-le", "replace")


# Never going back: a way back for each character takes a hundred times the memory of the text.
_METADATA_FIELD = re.compile(r'(\w++)=("(?:[^"\\]++|\\.)*+"|-?\d+)')


def sorted_along(attributes: Mapping[str, Any], rank: int) -> int:
    """Return the dimension along which a sort of arrays of a rank goes.

    It is the last where none is stated, and a negative one is counted from there (XLA, Sort). A scalar counts as sorted
    along dimension 0.
    """
    (stated,) = attributes.get("dimensions", (-1,))
    return int(stated) % max(1, rank)
