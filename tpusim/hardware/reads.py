"""Which figures of a chip are asked for while something is worked out: exactly those that it can depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NoReturn, cast

import msgspec

from tpusim.hardware.chip import Chip


class Reads:
    """A chip that notes what is read of it: ``keys`` are the dotted keys of the figures so far.

    What a part of the chip works out of its figures (``vmem.kernel_bytes``) is a key like any other: what else these
    are does not matter. To be told to people it is ``as_stated`` in a chip's file: those figures. One that is itself a
    table (``mxu.rate_by_type``) counts as one key, all of it.
    """

    def __init__(self, chip: Chip, *, as_stated: bool = False) -> None:
        self.keys: set[str] = set()
        self.chip = cast("Chip", _Watched(chip, "", self.keys.add, as_stated))


class _Watched:
    """A struct under watch. Attributes are all that can be had of it: to compare, copy or encode it would read all."""

    def __init__(self, struct: msgspec.Struct, prefix: str, note: Callable[[str], None], as_stated: bool) -> None:
        self._watched = struct, prefix, note, as_stated

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the struct, for who asks whether this is a chip."""
        return type(self._watched[0])

    def __getattr__(self, name: str) -> Any:
        struct, prefix, note, as_stated = self.__dict__["_watched"]
        worked_out = getattr(type(struct), name, None)
        if as_stated and isinstance(worked_out, property):
            return worked_out.__get__(self)
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            value = _Watched(value, f"{prefix}{name}.", note, as_stated)
        elif not callable(value):
            note(prefix + name)
        # Found there from now on without this function: what is read in inner loops costs no more than before.
        self.__dict__[name] = value
        return value

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a chip under watch is read key by key")

    __eq__ = __reduce__ = __iter__ = _refuse
    __hash__ = object.__hash__


def values_at(chip: Chip, keys: Iterable[str]) -> bytes:
    """Return the values of some keys of a chip, as bytes that are equal where the values are."""
    found = [attrgetter(key)(chip) for key in keys]
    return msgspec.json.encode(found)
