"""Values as studies write them: numbers with prefixes (``16Mi``, ``819G``), factors (``x2``), truths and texts."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tpusim.errors import ConfigError
from tpusim.hardware.fields import check_value, field_of

_PREFIXES = {
    **{f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTP", 1)},
    **{letter: 10 ** (3 * power) for power, letter in enumerate("kMGTP", 1)},
    **{letter: 10 ** (-3 * power) for power, letter in enumerate("mun", 1)},
}
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)(?P<digits>\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?)(?P<prefix>{'|'.join(_PREFIXES)})?"
    r"(?:B/s|B|Hz|s)?"
)


class Factor(NamedTuple):
    """How many times what the base chip has."""

    by: float

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"x{self.by:g}"


def parse_value(text: Any) -> Any:
    """Return what a text says: a number, a ``Factor``, true or false, else the text; what is none comes back."""
    if not isinstance(text, str):
        return text
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("x") and (by := _NUMBER.fullmatch(text[1:])):
        return Factor(float(_number(by)))
    found = _NUMBER.fullmatch(text.replace(" ", ""))
    return _number(found) if found else text


def _number(found: re.Match[str]) -> int | float:
    """Return a number, whole where it is written so and its prefix leaves it so."""
    times: int | float = _PREFIXES.get(found["prefix"] or "", 1)
    digits = found["sign"] + found["digits"].replace("_", "")
    return (float(digits) if re.search(r"[.eE]", digits) else int(digits)) * times


def chip_value(key: str, value: Any, base: Any) -> Any:
    """Return the value of a chip's key, in the key's own type: a factor times what the ``base`` chip has.

    Raises ConfigError with the nearest known key, or with what the key may hold.
    """
    field = field_of(key, "study")
    if isinstance(value, Factor):
        for name in key.split("."):
            base = base.get(name) if isinstance(base, dict) else getattr(base, name)
        if isinstance(base, bool) or not isinstance(base, (int, float)):
            raise ConfigError(f"study: {key}: expected a value, since the base has {base!r}, found a factor")
        value = base * value.by
    # 8.0 arrays are 8: factors and quotients that come out whole are no slips.
    if field.kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    return check_value(field, value, "study")
