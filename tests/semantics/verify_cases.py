"""For each constraint on whole modules a text that keeps it, and what to replace in it so that it breaks, by label."""

from __future__ import annotations

from tests.semantics.hlo import COMPUTATIONS


def _entry(*lines: str, header: str = "", before: str = "") -> str:
    """Return a module whose entry has these lines."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"HloModule m{header}\n{COMPUTATIONS}\n{before}\nENTRY e {{\n{body}}}\n"


_ADD = _entry("p = f32[2] parameter(0)", "q = f32[2] parameter(1)", "ROOT r = f32[2] add(p, q)")
_LAYOUT = _entry(
    "p = f32[2]{0} parameter(0)",
    "ROOT r = f32[2]{0} negate(p)",
    header=", entry_computation_layout={(f32[2]{0})->f32[2]{0}}",
)
_LAID_OUT = _entry(
    "p = f32[4,8]{1,0:T(8,128)} parameter(0)",
    "q = f32[4,8]{1,0:T(8,128)} negate(p)",
    "r = f32[4,8]{1,0:T(8,128)S(1)} add(p, q)",
    "f = f32[4,8]{1,0:T(8,128)} fusion(p), kind=kLoop, calls=laid_out",
    "h = f32[4,8]{1,0:T(8,128)S(5)} copy(p)",
    "u = f32[4,8]{1,0:T(8,128)} copy(h)",
    "t = (f32[4,8]{1,0:T(8,128)}, f32[4,8]{1,0:T(8,128)S(1)}) tuple(f, r)",
    "g = f32[4,8]{1,0:T(8,128)} get-tuple-element(t), index=0",
    "c = f32[] constant(0)",
    "ROOT d = f32[8]{0} reduce(g, c), dimensions={0}, to_apply=add",
    header=", is_scheduled=true",
    before="laid_out { a = f32[4,8]{1,0:T(8,128)} parameter(0) ROOT n = f32[4,8]{1,0:T(8,128)} negate(a) }\n",
)
_ALIASES = _entry(
    "p = (f32[2]{0}, f32[3]{0}) parameter(0)",
    "q = f32[2]{0} parameter(1)",
    "g = f32[2]{0} get-tuple-element(p), index=0",
    "ROOT r = (f32[2]{0}, f32[2]{0}) tuple(g, q)",
    header=", input_output_alias={ {0}: (0, {0}, must-alias), {1}: (1, {}, may-alias) }, buffer_donor={ (0, {1}) }",
)
_FUSED = """fused { a = f32[2] parameter(0) b = f32[2] parameter(1) n = f32[2] negate(a) ROOT m = f32[2] add(n, b) }
"""
_FUSION = _entry(
    "p = f32[2] parameter(0)",
    "f = f32[2] fusion(p, p), kind=kLoop, calls=fused, output_to_operand_aliasing={{}: (1, {})}",
    "ROOT g = f32[2] negate(f)",
    before=_FUSED,
)
_ASYNC = _entry(
    "p = f32[2] parameter(0)",
    'a = ((f32[2]), f32[2], u32[]) async-start(p), calls=wrapped, async_execution_thread="t"',
    "b = ((f32[2]), f32[2], u32[]) async-update(a)",
    "c = f32[2] async-done(b)",
    "ROOT d = f32[2] negate(c)",
    before='wrapped { x = f32[2] parameter(0) ROOT n = f32[2] negate(x) }, execution_thread="t"\n',
)
_ASYNC_ON_MAIN = _ASYNC.replace(', async_execution_thread="t"', "").replace(', execution_thread="t"', "")
_COPY = _entry(
    "p = f32[2] parameter(0)",
    "a = (f32[2], f32[2], u32[]) copy-start(p)",
    "b = f32[2] copy-done(a)",
    "ROOT r = f32[2] negate(b)",
)
_SEND = "s = (f32[2], u32[], token[]) send(p, k), channel_id=1"
_WAIT = "vd = (f32[2], token[]) recv-done(v), channel_id=1"
_CHANNEL = _entry(
    "p = f32[2] parameter(0)",
    "k = token[] after-all()",
    "v = (f32[2], u32[], token[]) recv(k), channel_id=1",
    _SEND,
    _WAIT,
    "sd = token[] send-done(s), channel_id=1",
    "ROOT r = f32[2] get-tuple-element(vd), index=0",
    header=", is_scheduled=true",
)
_HOST = _entry(
    "p = f32[2] parameter(0)",
    "k = token[] after-all()",
    "s = (f32[2], u32[], token[]) send(p, k), channel_id=1, is_host_transfer=true",
    "sd = token[] send-done(s), channel_id=1, is_host_transfer=true",
    "t = (f32[2], u32[], token[]) send(p, sd), channel_id=1, is_host_transfer=true",
    "ROOT td = token[] send-done(t), channel_id=1, is_host_transfer=true",
)
_REDUCED = _entry(
    "p = f32[2] parameter(0)",
    "a = f32[2] all-reduce(p), to_apply=add, constrain_layout=true",
    "ROOT b = f32[2] all-reduce(a), to_apply=add, constrain_layout=true",
)
_BUFFERS = _entry(
    "p = f32[2] parameter(0)",
    "s = s32[1] constant({0})",
    'b = b(f32[2]) custom-call(p), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}',
    "c = b(f32[2]) dynamic-update-slice(b, p, s)",
    'd = b(f32[2]) custom-call(c), custom_call_target="own", output_to_operand_aliasing={{}: (0, {})}',
    'ROOT r = f32[2] custom-call(d), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}',
)
_SHARDED = _entry(
    "p = f32[4,2] parameter(0), sharding={devices=[2,1]0,1}",
    "ROOT r = f32[4,2] negate(p)",
)
_LOOP = _entry(
    "p = f32[2] parameter(0)",
    "ROOT w = f32[2] while(p), condition=condition, body=body, sharding={replicated}",
).replace("body { s = f32[2] parameter(0)", "body { s = f32[2] parameter(0), sharding={replicated}")
_THREADS = _entry(
    "p = f32[2] parameter(0)",
    "ROOT w = f32[2] while(p), condition=condition, body=body",
)

CASES: dict[str, tuple[str, str, str]] = {
    "shape_c2": (_ADD, "r = f32[2]", "r = f32[3]"),
    "shape_c3": (_ADD, "f32[2]", "f32[?]"),
    "precision_c1": (_ADD, "q = f32[2]", "q = bf16[2]"),
    "precision_c2": (
        _entry(
            "p = f32[2] parameter(0)",
            "z = f32[] constant(0)",
            "ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply=add",
        ),
        "p = f32[2]",
        "p = bf16[2]",
    ),
    "fusion_c3": (_FUSION, "g = f32[2] negate(f)", "g = f32[2] fusion(f, f), kind=kLoop, calls=fused"),
    "fusion_c4": (_FUSION, "ROOT m = f32[2] add(n, b)", "ROOT m = f32[2] add(n, b) o = f32[2] negate(m)"),
    "fusion_c5": (_FUSION, "add(n, b)", "add(b, b)"),
    "layout_c1": (_LAYOUT, "{(f32[2]{0})", "{(f32[2]{0}, f32[2]{0})"),
    "layout_c2": (_LAYOUT, "{(f32[2]{0})", "{(f32[3]{0})"),
    "layout_c3": (_LAYOUT, "->f32[2]{0}", "->s32[2]{0}"),
    "layout_c4": (_LAID_OUT, "q = f32[4,8]{1,0:T(8,128)}", "q = f32[4,8]{0,1:T(8,128)}"),
    "layout_c5": (_LAID_OUT, "g = f32[4,8]{1,0:T(8,128)} get", "g = f32[4,8]{1,0:T(8,128)S(1)} get"),
    "layout_c6": (_LAID_OUT, "a = f32[4,8]{1,0:T(8,128)}", "a = f32[4,8]{1,0:T(4,128)}"),
    "layout_c7": (_LAID_OUT, "u = f32[4,8]{1,0:T(8,128)}", "u = bf16[4,8]{1,0:T(8,128)}"),
    "alias_c1": (_ALIASES, "(1, {}, may-alias)", "(2, {}, may-alias)"),
    "alias_c2": (_ALIASES, "(0, {0}, must-alias)", "(0, {}, may-alias)"),
    "alias_c3": (_ALIASES, "(1, {}, may-alias)", "(0, {0}, may-alias)"),
    "alias_c4": (_ALIASES, "(0, {0}, must-alias)", "(0, {1}, must-alias)"),
    "alias_c5": (_FUSION, "{{}: (1, {})}", "{{}: (2, {})}"),
    "alias_c6": (_FUSION, "{{}: (1, {})}", "{{0}: (1, {})}"),
    "alias_c7": (
        _entry(
            "p = f32[2] parameter(0)",
            "q = f32[3] parameter(1)",
            'ROOT r = f32[2] custom-call(p, q), custom_call_target="a", output_to_operand_aliasing={{}: (0, {})}',
        ),
        "{{}: (0, {})}",
        "{{}: (1, {})}",
    ),
    "alias_c8": (
        _ALIASES.replace("f32[2]{0} parameter(1)", "s32[2]{0} parameter(1)").replace(
            "(f32[2]{0}, f32[2]{0}) tuple(g, q)", "(f32[2]{0}, s32[2]{0}) tuple(g, q)"
        ),
        "(1, {}, may-alias) }, buffer_donor={ (0, {1}) }",
        "(0, {1}, may-alias) }",
    ),
    "donor_c1": (_ALIASES, "(0, {1})", "(0, {2})"),
    "donor_c2": (_ALIASES, "(0, {1})", "(0, {0})"),
    "computation_c4": (
        _THREADS,
        "ROOT r = f32[2] negate(s) }\ngrows",
        'ROOT r = f32[2] negate(s) }, execution_thread="t"\ngrows',
    ),
    "async_c8": (_ASYNC, "ROOT d = f32[2] negate(c)", "x = f32[2] async-done(b)\n  ROOT d = f32[2] negate(c)"),
    "async_c10": (_ASYNC, "c = f32[2] async-done", "c = (f32[2]) async-done"),
    "async_c11": (_ASYNC, ', async_execution_thread="t"', ""),
    "async_c12": (_ASYNC_ON_MAIN, "ROOT n = f32[2] negate(x)", "y = f32[2] negate(x) ROOT n = f32[2] negate(y)"),
    "async_c13": (
        _entry(
            "p = f32[2] parameter(0)",
            "a = ((f32[2]), f32[2], u32[]) async-start(p), calls=wrapped",
            "b = ((f32[2], f32[2]), f32[2], u32[]) async-update(a, p)",
            "ROOT c = f32[2] async-done(b)",
            before="wrapped { x = f32[2] parameter(0) y = f32[2] parameter(1) ROOT n = f32[2] add(x, y) }\n",
        ),
        "((f32[2], f32[2]), f32[2], u32[]) async-update(a, p)",
        "((f32[2]), f32[2], u32[]) async-update(a)",
    ),
    "pair_c1": (_COPY, "ROOT r = f32[2] negate(b)", "x = f32[2] copy-done(a)\n  ROOT r = f32[2] negate(b)"),
    "pair_c2": (
        _COPY,
        "a = (f32[2], f32[2], u32[]) copy-start(p)",
        "u = u32[] constant(0)\n  a = (f32[2], f32[2], u32[]) tuple(p, p, u)",
    ),
    "channel_c2": (_HOST, "send-done(s), channel_id=1, is_host_transfer=true", "send-done(s), channel_id=1"),
    "channel_c3": (_HOST, "sd), channel_id=1, is", 'sd), channel_id=1, frontend_attributes={a="b"}, is'),
    "channel_c4": (
        _CHANNEL,
        f"{_SEND}\n  {_WAIT}\n",
        f"{_WAIT}\n  {_SEND}\n",
    ),
    "channel_c5": (
        _CHANNEL,
        "send(p, k), channel_id=1",
        'send(p, k), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,2147483648}}"}',
    ),
    "channel_c6": (
        _entry(
            "p = f32[2] parameter(0)", "ROOT r = f32[2] collective-permute(p), channel_id=2, source_target_pairs={}"
        ),
        "channel_id=2",
        "channel_id=-2",
    ),
    "all_reduce_c2": (_REDUCED, "all-reduce(a), to_apply=add, constrain_layout=true", "all-reduce(a), to_apply=add"),
    "buffer_c1": (_BUFFERS, "c = b(f32[2]) dynamic-update-slice(b, p, s)", "c = b(f32[2]) copy(b)"),
    "buffer_c2": (
        _BUFFERS,
        'custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}',
        'custom_call_target="Pin"',
    ),
    "buffer_c3": (_BUFFERS, 'target="own", output_to_operand_aliasing={{}: (0, {})}', 'target="own"'),
    "buffer_c4": (
        _BUFFERS,
        "c = b(f32[2]) dynamic",
        "x = b(f32[2]) dynamic-update-slice(b, p, s)\n  c = b(f32[2]) dynamic",
    ),
    "buffer_c5": (_BUFFERS, "c = b(f32[2]) dynamic", "c = f32[2] dynamic"),
    "sharding_c1": (_SHARDED, "[2,1]0,1", "[2,1,1]0,1"),
    "sharding_c2": (_SHARDED, "[2,1]0,1", "[2,1]1,1"),
    "sharding_c3": (_LOOP, "body=body, sharding={replicated}", "body=body, sharding={maximal device=0}"),
    "origin_c1": (
        _entry(
            'p = (f32[2], f32[2]) parameter(0), origin={({"a"}, {"b" {1}})}',
            "ROOT r = f32[2] get-tuple-element(p), index=0",
        ),
        ', {"b" {1}})',
        ")",
    ),
}
"""A module that keeps the constraint, and a part of it with what to put in its place."""
