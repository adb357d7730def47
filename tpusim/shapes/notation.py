"""Shapes from text: the notation of HLO, and of XLA's documents where it differs.

Nearly every shape of a program is an ordinary array that has been seen before. ``parse_shape`` therefore has a cache,
behind it one regular expression for ordinary arrays, and behind that a reader of the whole grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tpusim.errors import ConfigError, ProgramError
from tpusim.shapes.dtype import DTYPES, DType, unknown_dtype
from tpusim.shapes.layout import COMBINE, Layout, SplitConfig, validate_layout
from tpusim.shapes.reader import Reader, skip_blanks
from tpusim.shapes.shape import UNBOUNDED, ArrayShape, BufferShape, Shape, TupleShape
from tpusim.source import SourceText

_DEEPEST = 100
"""Tuples nested deeper than this are refused: no program has them, and walks over shapes may recurse."""

_ORDINARY_ARRAY = re.compile(
    # A layout with blanks, comments or braces (of P) inside is not ordinary: the look-ahead leaves it to the reader.
    # Possessive repeats (*+) keep no way back, which for megabytes of sizes would take a hundred times their memory.
    r"([a-z]\w*)\[((?:\d{1,18}+(?:,\d{1,18}+)*+)?)\](?:(\{[\d:][^{}/\s]*\})|(?!\s*[{/]))"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_BUFFER_OPENS = re.compile(r"b\s*\(")
# A brace after a shape opens a layout only if a number or colon follows; else it opens a computation.
_LAYOUT_OPENS = re.compile(r"\{(?=(?:\s+|/\*.*?\*/)*+[\d:])", re.DOTALL)
_DIM_LEVEL = re.compile(r"[DCSH]\+?~?")
# The documents print the star as a mathematical operator: by its number, as names of characters take a large table.
_STAR = re.compile(r"[*\u2217]|-1(?!\d)")


def parse_shape(text: str) -> Shape:
    """Return the shape that ``text`` states, e.g. ``bf16[10,300]{1,0:T(8,128)(2,1)}``.

    Besides what HLO text may hold, the spellings of XLA's document "Tiled layout" are read: upper-case type names and
    tiles without ``T``. Raises ``ProgramError``, with the place in ``text``, for anything else, and ``ConfigError`` for
    what is no text.
    """
    if not isinstance(text, str):
        raise ConfigError(f"shape: expected a text such as 'bf16[10,300]', found {text!r:.80}")
    return _shape_of(text)


# A large program has a few thousand distinct shapes; the bound is for processes that read many programs.
@lru_cache(maxsize=1 << 16)
def _shape_of(text: str) -> Shape:
    shape, end = parse_shape_prefix(text, 0)
    if skip_blanks(text, end) != len(text):
        Reader(text, end).fail("the end of the shape")
    return shape


def parse_shape_prefix(text: str, offset: int, source: SourceText | None = None) -> tuple[Shape, int]:
    """Return the shape that begins at ``offset`` (blanks may precede it) and the offset after its last character.

    ``source`` is the text that errors show, if not ``text`` itself; offsets in both must agree.
    """
    reader = Reader(text, offset, source)
    return _shape(reader), reader.position


_Open = tuple[bool, list[Shape]]
"""What still waits for its closing parenthesis: whether it is a buffer, and its elements so far."""


def _shape(reader: Reader) -> Shape:
    """Read any shape. Open tuples wait on a list, not in recursion, so that no text can exhaust Python's stack."""
    waiting: list[_Open] = []
    while True:
        shape = _begin(reader, waiting)
        while shape is not None and waiting:
            shape = _take(shape, reader, waiting)
        if shape is not None:
            return shape


def _begin(reader: Reader, waiting: list[_Open]) -> Shape | None:
    """Read a shape without elements, or put an opened tuple or buffer on ``waiting`` and return ``None``."""
    # Arrays come first because they are nearly all; a text that begins with anything else fails here at once.
    array = _ordinary_array(reader)
    if array is not None:
        return array
    is_tuple = reader.accept("(")
    if is_tuple and reader.accept(")"):
        return TupleShape()
    if not is_tuple and reader.find(_BUFFER_OPENS) is None:
        return _array(reader)
    if len(waiting) >= _DEEPEST:
        raise reader.error(f"expected tuples nested at most {_DEEPEST} deep, found more")
    waiting.append((not is_tuple, []))
    return None


def _take(shape: Shape, reader: Reader, waiting: list[_Open]) -> Shape | None:
    """Give an element to the innermost open tuple or buffer; return that, taken off ``waiting``, if it ends here."""
    is_buffer, elements = waiting[-1]
    # XLA keeps buffers flat.
    if is_buffer and not isinstance(shape, ArrayShape):
        raise reader.error("expected an array in a buffer b(), found a tuple or buffer")
    elements.append(shape)
    if not is_buffer and reader.accept(","):
        return None
    if not reader.accept(")"):
        reader.fail("')'" if is_buffer else "',' or ')' in a tuple")
    waiting.pop()
    return BufferShape(shape) if is_buffer else TupleShape(tuple(elements))


def _ordinary_array(reader: Reader) -> ArrayShape | None:
    """Read an array by the regular expression, or return ``None`` if it is wrong or needs the whole grammar."""
    reader.skip_blanks()
    match = _ORDINARY_ARRAY.match(reader.text, reader.position)
    if match is None or reader.is_in_physical_shape:
        return None
    shape = _known_array(*match.groups())
    if shape is not None:
        reader.position = match.end()
    return shape


@lru_cache(maxsize=1 << 16)
def _known_array(name: str, sizes: str, layout_text: str | None) -> ArrayShape | None:
    """Return the array of these parts, one object per text, or ``None`` if they are wrong together."""
    element_type = DTYPES.get(name)
    # Tokens and opaque values with sizes or a layout, which abort XLA, go on to the reader and its error.
    if element_type is None or not (element_type.bits or (sizes == "" and layout_text is None)):
        return None
    dimensions = tuple(map(int, sizes.split(","))) if sizes else ()
    layout = None
    if layout_text is not None:
        layout = _known_layout(layout_text)
        # A wrong layout goes to the reader, which finds the same fault and knows its place.
        if layout is None or len(layout.minor_to_major) != len(dimensions):
            return None
    return ArrayShape(element_type, dimensions, (), _stated(layout))


@lru_cache(maxsize=4096)
def _known_layout(text: str) -> Layout | None:
    """Return the layout that ``text`` states, one object per text, or ``None`` if it states none."""
    try:
        return _layout(Reader(text, 1))
    except ProgramError:
        return None


def _array(reader: Reader) -> ArrayShape:
    """Read an array of any spelling, with its layout if one follows."""
    element_type = _type_name(reader)
    start = reader.position
    reader.expect("[")
    sizes = () if reader.peek("]") else reader.items(_size)
    reader.expect("]")
    # Looking for a layout moves over blanks, which are not the shape's if none follows.
    end = reader.position
    dimensions = tuple(size for size, _ in sizes)
    dynamic = tuple(is_bound for _, is_bound in sizes)
    layout = _layout(reader, len(sizes)) if reader.find(_LAYOUT_OPENS) else None
    if layout is None:
        reader.position = end
    if (sizes or layout) and not element_type.is_array_type:
        raise reader.error(f"expected {element_type}[] without sizes and layout, found some", start)
    return ArrayShape(element_type, dimensions, dynamic if any(dynamic) else (), _stated(layout))


def _type_name(reader: Reader) -> DType:
    """Read the name of an element type, in either case."""
    word = reader.find(_WORD)
    if word is None:
        reader.fail("a shape such as f32[2,3]")
    # HLO has lower case only; the documents write F32 and PRED.
    found = DTYPES.get(word) or DTYPES.get(word.lower())
    if found is None:
        raise reader.error(unknown_dtype(word), reader.position - len(word))
    return found


def _size(reader: Reader) -> tuple[int, bool]:
    """Read a dimension's size, and whether it is only a bound: ``n``, ``<=n`` or ``?``."""
    if reader.accept("?"):
        return UNBOUNDED, True
    is_bound = reader.accept("<=")
    return reader.number(), is_bound


def _layout(reader: Reader, rank: int | None = None) -> Layout:
    """Read a layout, its opening brace just passed, and check it against the rank if that is known."""
    # The caret goes under the whole layout: its rules are about parts that stand apart.
    start = reader.position - 1
    order = () if reader.peek(":") else reader.items(Reader.number)
    fields: dict[str, Any] = {}
    if reader.accept(":"):
        for pattern, name, read in _LAYOUT_PARTS:
            if reader.find(pattern):
                found = [_enclosed(reader, read)]
                while name in _REPEATED and reader.accept("("):
                    found.append(_enclosed(reader, read))
                fields[name] = tuple(found) if name in _REPEATED else found[0]
    if not reader.accept("}"):
        reader.fail("'}' or a part of the layout, in the order D() T() L() #() *() E() S() SC() P() M()")
    layout = Layout(order, **fields)
    validate_layout(layout, len(order) if rank is None else rank, reader.span(start))
    return layout


def _stated(layout: Layout | None) -> Layout | None:
    """Return a layout, None for the one of a scalar that says nothing: ``{:}`` is not printed, here as in XLA."""
    return None if layout == _NOTHING else layout


_NOTHING = Layout(())


def _enclosed(reader: Reader, read: Callable[[Reader], Any]) -> Any:
    """Read what stands in parentheses, after the opening one."""
    found = read(reader)
    reader.expect(")")
    return found


def _dim_levels(reader: Reader) -> str:
    """Read the level types of a sparse array."""
    expected = "a dimension level type: D, C, S or H"
    return ",".join(reader.items(lambda reader: reader.find(_DIM_LEVEL) or reader.fail(expected)))


def _tile(reader: Reader) -> tuple[int, ...]:
    """Read sizes or ``*``, which programs that build layouts write as -1."""
    return reader.items(lambda reader: COMBINE if reader.find(_STAR) else reader.number())


def _integer_type(reader: Reader) -> str:
    found = _type_name(reader)
    # XLA reads other types as "invalid" and prints that.
    if not found.is_integer:
        raise reader.error(f"expected an integer type, found {found}", reader.position - len(found.name))
    return found.name


def _split_config(reader: Reader) -> SplitConfig:
    """Read ``dimension:i,j``."""
    dimension = reader.number()
    reader.expect(":")
    return SplitConfig(dimension, reader.items(Reader.number))


def _physical_shape(reader: Reader) -> Shape:
    """Read the shape that is really stored."""
    if reader.is_in_physical_shape:
        raise reader.error("expected no P() in the layout of a physical shape, found one")
    reader.is_in_physical_shape = True
    shape = _shape(reader)
    reader.is_in_physical_shape = False
    return shape


_LAYOUT_PARTS = (
    (re.compile(r"D\s*\("), "dim_level_types", _dim_levels),
    # XLA's documents leave the T out.
    (re.compile(r"T?\s*\("), "tiles", _tile),
    (re.compile(r"L\s*\("), "tail_padding_alignment", Reader.number),
    (re.compile(r"#\s*\("), "index_primitive_type", _integer_type),
    (re.compile(r"\*\s*\("), "pointer_primitive_type", _integer_type),
    (re.compile(r"E\s*\("), "element_size_bits", Reader.number),
    (re.compile(r"S\s*\("), "memory_space", Reader.number),
    (re.compile(r"SC\s*\("), "split_configs", _split_config),
    (re.compile(r"P\s*\("), "physical_shape", _physical_shape),
    (re.compile(r"M\s*\("), "metadata_prefix_bytes", Reader.number),
)
"""The parts of a layout in the order of the text: how each begins, its field, and what reads it up to the ``)``."""
_REPEATED = ("tiles", "split_configs")
"""Fields of which several may follow each other: ``T(8,128)(2,1)``."""
