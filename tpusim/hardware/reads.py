"""Which figures of a chip are asked for while something is worked out: exactly those that it can depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NoReturn, cast

import msgspec

from tpusim.hardware.chip import Chip


class Reads:
    """A chip that notes what is read of it: ``keys`` are the dotted keys of the figures so far.

    A figure that is itself a table (``mxu.rate_by_type``) counts as one key, all of it.
    """

    def __init__(self, chip: Chip) -> None:
        self.keys: set[str] = set()
        self.chip = cast("Chip", _Watched(chip, "", self.keys.add))


class _Watched:
    """A struct under watch. Attributes are all that can be had of it: to compare, copy or encode it would read all."""

    def __init__(self, struct: msgspec.Struct, prefix: str, note: Callable[[str], None]) -> None:
        self._watched = struct, prefix, note

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the struct, for who asks whether this is a chip."""
        return type(self._watched[0])

    def __getattr__(self, name: str) -> Any:
        struct, prefix, note = self.__dict__["_watched"]
        of_class = getattr(type(struct), name, None)
        if isinstance(of_class, property) and of_class.fget:
            # What is worked out from fields notes these.
            return of_class.fget(self)
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            value = _Watched(value, f"{prefix}{name}.", note)
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
