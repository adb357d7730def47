"""Short texts: shapes with their layouts, the host's paces, attributes, values of a chip's keys."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from tests.robust.contract import Wrong, check_text, surface
from tests.robust.grammar import EXPRESSION, OVERRIDE, PACE, PACE_FILE, SHAPE, sentences
from tpusim.hardware.load import parse_override
from tpusim.program.feed import intervals_ps, parse_feed
from tpusim.report.json.facts import layout_page
from tpusim.report.pipe import make_printer
from tpusim.report.terminal.layout import render_layout
from tpusim.shapes.layout_facts import layout_facts
from tpusim.shapes.notation import parse_shape
from tpusim.study.expressions import Expression


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


@surface("layout", sentences(SHAPE), 4)
def take_layout(content: bytes, folder: Path) -> None:
    """Read a shape, and explain its layout."""
    shape = parse_shape(_text(content))
    if parse_shape(str(shape)) != shape:
        raise Wrong(f"printed, {shape} is another shape")
    layout_page(layout_facts(shape, None))


@surface("shown-layout", sentences(SHAPE), 1)
def take_shown_layout(content: bytes, folder: Path) -> None:
    """Print what there is to say of a layout."""
    facts = layout_facts(parse_shape(_text(content)), None)
    with redirect_stdout(StringIO()) as shown:
        render_layout(facts, make_printer())
    check_text(shown.getvalue())


@surface("pace", sentences(PACE), 4)
def take_pace(content: bytes, folder: Path) -> None:
    """Read a pace of the host and draw times from it."""
    times = intervals_ps(parse_feed(_text(content)), 3)
    for _, time_ps in zip(range(3), times, strict=False):
        if not (isinstance(time_ps, int) and time_ps >= 0):
            raise Wrong(f"a time of {time_ps!r}")


@surface("override", sentences(OVERRIDE), 4)
def take_override(content: bytes, folder: Path) -> None:
    """Read a key and its value."""
    parse_override(_text(content))


@surface("expression", sentences(EXPRESSION), 4)
def take_expression(content: bytes, folder: Path) -> None:
    """Read an expression of a study and work it out."""
    values = {"mxu.count": 4, "mxu.rows": 128, "clock_hz": 1.0e9, "vmem.capacity_bytes": 2**27}
    Expression(_text(content), "case").value(lambda key: values.get(key, 1))


@surface("pace-file", sentences(PACE_FILE), 2)
def take_pace_file(content: bytes, folder: Path) -> None:
    """Read a file of times."""
    path = folder / "paces.txt"
    path.write_bytes(content)
    list(intervals_ps(parse_feed(str(path))))
