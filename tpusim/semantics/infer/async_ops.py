"""Shapes of asynchronous operations, transfers and tokens."""

from __future__ import annotations

from collections.abc import Sequence

from tpusim.ir.module import Instruction
from tpusim.ir.ops import OPERATIONS, async_parts
from tpusim.semantics.infer.site import RULES, Rule, Signature, Site, broken, infers, require
from tpusim.semantics.infer.types import TOKEN, U32, is_prefix, is_token, parts, plain
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape, compatible


def infer_short_form(opcode: str) -> Rule | None:
    """Return the rule of ``X-start``, ``X-update`` or ``X-done`` around an ordinary operation X; None of any other."""
    pair = async_parts(opcode)
    return None if pair is None else {"start": _short_start, "update": _update, "done": _done}[pair[1]]


def _short_start(site: Site) -> Shape:
    """Give the stated shape, whose operands and result must be those of the operation inside."""
    pair = async_parts(site.opcode)
    assert pair is not None
    if pair[0] == "call":
        # Operands may come later, by updates, so that the call cannot be judged yet.
        return _started(site, site.signature("to_apply"))
    if not OPERATIONS[pair[0]].accepts_count(len(site.operands)):
        raise broken("instruction_c2", f"{len(site.operands)} for {site.opcode!r}")
    # The operation inside is judged as if it stood alone, with the result that the start states for it.
    inner = Instruction("wrapped", async_state(site.stated())[1], pair[0], site.instruction.operands, site.attributes)
    given = RULES[pair[0]](Site(inner, site.operands, site.module))
    return _started(site, Signature(tuple(site.operands), given))


infers("async-start")(lambda site: _started(site, site.signature("calls")))


def async_state(shape: Shape) -> tuple[TupleShape, Shape]:
    """Return operands and result of the shape ``((operands), result, ...)``."""
    state = find_async_state(shape)
    if state is None:
        raise broken("async_c1", plain(shape))
    return state


def find_async_state(shape: Shape) -> tuple[TupleShape, Shape] | None:
    """Return the same, or None if the shape is another."""
    if isinstance(shape, TupleShape) and len(shape.elements) > 1 and isinstance(shape.elements[0], TupleShape):
        return shape.elements[0], shape.elements[1]
    return None


def _started(site: Site, signature: Signature) -> Shape:
    """Give the stated shape, operands and result so far, which must begin as operands and computation say."""
    operands, result = async_state(site.stated())
    require(len(operands.elements) == len(site.operands), "async_c2", len(site.operands), "for", operands)
    _check_bound("async_c3", operands.elements, site.operands)
    # A prefix is enough: operands and parts of the result may come with updates.
    if not is_prefix(operands, TupleShape(signature.parameters)):
        raise broken("async_c4", f"{plain(operands)} for {plain(TupleShape(signature.parameters))}")
    require(is_prefix(result, signature.result), "async_c5", result, "for", signature.result)
    return site.stated()


def _check_bound(label: str, expected: Sequence[Shape], operands: Sequence[Shape]) -> None:
    for shape, operand in zip(expected, operands, strict=True):
        require(compatible(shape, operand), label, operand, "for", shape)


@infers("async-update")
def _update(site: Site) -> Shape:
    """Give the stated shape, which must go on from that of the operand: more operands may have come."""
    # An update that adds nothing has the shape of what it goes on with.
    if site.declared is None:
        return site.operands[0]
    before, result_before = async_state(site.operands[0])
    operands, result = async_state(site.declared)
    if not is_prefix(before, operands) or not is_prefix(result_before, result):
        raise broken("async_c6", f"{plain(site.declared)} after {plain(site.operands[0])}")
    if not compatible(*(TupleShape(parts(shape)[2:]) for shape in (site.operands[0], site.declared))):
        raise broken("async_c14", f"{plain(site.declared)} after {plain(site.operands[0])}")
    added = operands.elements[len(before.elements) :]
    require(len(added) == len(site.operands) - 1, "async_c7", len(site.operands) - 1, "for", len(added))
    _check_bound("async_c3", added, site.operands[1:])
    return site.declared


@infers("async-done")
def _done(site: Site) -> Shape:
    """Give the result; where only its beginning was known before, the stated shape."""
    _, result = async_state(site.operands[0])
    declared = site.declared
    return declared if declared is not None and is_prefix(result, declared) else result


# Target before source: the opposite of async-start, which has its operands first.
infers("copy-start")(lambda site: TupleShape((site.operands[0], site.operands[0], U32)))


@infers("copy-done")
def _copy_done(site: Site) -> Shape:
    target, source = elements_of(site.operands[0], 2, "start_c1")[:2]
    # Up to layout and memory space: to change these is what copies are for.
    require(compatible(target, source), "copy_done_c1", site.operands[0])
    return target


def elements_of(shape: Shape, least: int, label: str) -> tuple[Shape, ...]:
    """Return the elements of a tuple of at least so many; any other shape breaks the constraint of the label."""
    if not isinstance(shape, TupleShape) or len(shape.elements) < least:
        raise broken(label, plain(shape))
    return shape.elements


@infers("send")
def _send(site: Site) -> TupleShape:
    """Give the data, a request id and a token.

    The document's Send takes and gives no token; XLA's text has had one since, and there is no other form.
    """
    _check_token(site, 1)
    return TupleShape((site.operands[0], U32, TOKEN))


@infers("recv")
def _recv(site: Site) -> TupleShape:
    _check_token(site, 0)
    return TupleShape((elements_of(site.stated(), 1, "recv_c1")[0], U32, TOKEN))


infers("recv-done")(lambda site: TupleShape((elements_of(site.operands[0], 1, "start_c1")[0], TOKEN)))


@infers("infeed")
def _infeed(site: Site) -> TupleShape:
    _check_token(site, 0)
    require(len(elements_of(site.stated(), 2, "infeed_c1")) == 2, "infeed_c1", site.stated())
    data = parts(site.stated())[0]
    nested = isinstance(data, TupleShape) and any(isinstance(element, TupleShape) for element in data.elements)
    require(not nested, "infeed_c2", data)
    return TupleShape((data, TOKEN))


@infers("outfeed")
def _outfeed(site: Site) -> ArrayShape:
    _check_token(site, 1)
    stated = site.attributes.get("outfeed_shape", site.operands[0])
    require(compatible(stated, site.operands[0]), "outfeed_c1", stated, "for", site.operands[0])
    return TOKEN


@infers("add-dependency")
def _add_dependency(site: Site) -> Shape:
    _check_token(site, 1)
    return site.operands[0]


infers("send-done")(lambda site: TOKEN)


@infers("after-all")
def _after_all(site: Site) -> ArrayShape:
    # Operands are tokens, but the TPU compiler also waits for arrays.
    if site.module.attributes.get("is_scheduled") is not True:
        for position in range(len(site.operands)):
            _check_token(site, position)
    return TOKEN


def _check_token(site: Site, position: int) -> None:
    shape = site.operands[position]
    require(is_token(shape), "token_c1", "operand", position, "of shape", shape)
