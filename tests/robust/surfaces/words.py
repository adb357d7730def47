"""Short texts: shapes with their layouts, the host's paces, attributes, values of a chip's keys."""

from __future__ import annotations

from pathlib import Path

from tests.robust.contract import Wrong, check_text, surface
from tests.robust.mutations import encoded, mutated_text
from tpusim.hardware.load import parse_override
from tpusim.program.feed import intervals_ps, parse_feed
from tpusim.report.json.facts import layout_page
from tpusim.report.tables import make_console
from tpusim.report.terminal.layout import render_layout
from tpusim.shapes.layout_facts import layout_facts
from tpusim.shapes.notation import parse_shape
from tpusim.study.expressions import Expression

_SHAPES = (
    *(
        "bf16[10,300]{1,0:T(8,128)(2,1)}",
        "f32[8,256]{0,1:T(8,128)S(1)}",
        "pred[]",
        "(f32[2,3], (s4[16]{0:E(4)}, token[]))",
    ),
    *(
        "s32[<=128,4]{1,0:D(D,C)}",
        "u8[3,5,7]{2,1,0:T(4,128)(4,1)SC(0:3)L(1024)}",
        "c64[2]{0:T(256)}",
        "f8e4m3fn[64,64]",
    ),
)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


@surface("layout", lambda random: encoded(mutated_text(random, random.choice(_SHAPES))), 4)
def take_layout(content: bytes, folder: Path) -> None:
    """Read a shape, and explain its layout."""
    shape = parse_shape(_text(content))
    if parse_shape(str(shape)) != shape:
        raise Wrong(f"printed, {shape} is another shape")
    layout_page(layout_facts(shape, None))


@surface("shown-layout", lambda random: encoded(mutated_text(random, random.choice(_SHAPES))), 1)
def take_shown_layout(content: bytes, folder: Path) -> None:
    """Print what there is to say of a layout."""
    facts = layout_facts(parse_shape(_text(content)), None)
    console = make_console()
    with console.capture() as shown:
        render_layout(facts, console)
    check_text(shown.get())


_PACES = ("50us", "normal:50us:5us:7", "exponential:50us:7", "constant:1.5e-3ms", "0ns", "3e9s")


@surface("pace", lambda random: encoded(mutated_text(random, random.choice(_PACES))), 4)
def take_pace(content: bytes, folder: Path) -> None:
    """Read a pace of the host and draw times from it."""
    times = intervals_ps(parse_feed(_text(content)), 3)
    for _, time_ps in zip(range(3), times, strict=False):
        if not (isinstance(time_ps, int) and time_ps >= 0):
            raise Wrong(f"a time of {time_ps!r}")


@surface("override", lambda random: encoded(mutated_text(random, "hbm.bandwidth_bytes_per_second=1.2e12")), 4)
def take_override(content: bytes, folder: Path) -> None:
    """Read a key and its value."""
    parse_override(_text(content))


_EXPRESSIONS = (
    "mxu.count * 2 ** 30 <= 700",
    "max(mxu.rows, 128) / (clock_hz - 1) > 2",
    "-vmem.capacity_bytes % 7 + 1e9",
)


@surface("expression", lambda random: encoded(mutated_text(random, random.choice(_EXPRESSIONS))), 4)
def take_expression(content: bytes, folder: Path) -> None:
    """Read an expression of a study and work it out."""
    values = {"mxu.count": 4, "mxu.rows": 128, "clock_hz": 1.0e9, "vmem.capacity_bytes": 2**27}
    Expression(_text(content), "case").value(lambda key: values.get(key, 1))


_PACE_FILE = ("10.5\n20\n30\n0\n1e3\n",)


@surface("pace-file", lambda random: encoded(mutated_text(random, _PACE_FILE[0])), 2)
def take_pace_file(content: bytes, folder: Path) -> None:
    """Read a file of times."""
    path = folder / "paces.txt"
    path.write_bytes(content)
    list(intervals_ps(parse_feed(str(path))))
