"""SCALE-Sim's configurations: where what is wrong in them stands."""

from __future__ import annotations

import pytest

from tpusim.errors import ConfigError
from tpusim.hardware.scale_config import parse_scale_config
from tpusim.source import SourceText

BLANKS = " " * 1500


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("words", 1, "expected [section] or key: value"),
        (f"{BLANKS}a{BLANKS}b", 1501, "expected [section] or key: value"),
        (f"{BLANKS}: 3", 1501, "expected [section] or key: value"),
        (f"{BLANKS}Rows{BLANKS}= 4", 1501, "unknown key 'Rows'"),
        (f"ArrayHeight{BLANKS}:{BLANKS}x = y{BLANKS}", 3013, "expected a whole number from 1, found 'x = y'"),
    ],
)
def test_blanks_cost_nothing(line: str, column: int, message: str) -> None:
    """A pattern with three stretches of blanks would take their cube, minutes; and carets stand under what is there."""
    keys = "ArrayWidth IfmapSramSzkB FilterSramSzkB OfmapSramSzkB"
    whole = "".join(f"{key} = 8\n" for key in keys.split()) + "Dataflow = ws\n"
    whole += "" if "ArrayHeight" in line else "ArrayHeight = 8\n"
    with pytest.raises(ConfigError) as found:
        parse_scale_config(SourceText("a.cfg", f"{whole}{line}\n"))
    assert found.value.span is not None
    assert found.value.span.column == column
    assert found.value.message.startswith(message)
    assert len(str(found.value)) < 400
