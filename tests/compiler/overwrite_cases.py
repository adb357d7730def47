"""Programs that once lay in memory so that something was read after it was written over, each as small as it can be.

Beside them are programs that are scheduled by hand, so that this is so in them. Words in capitals stand for what they
have in common: see ``WORDS``.
"""

from __future__ import annotations

WORDS = {
    "STATE": "(s32[], MATRIX, MATRIX)",
    "PAIR": "(MATRIX, MATRIX)",
    "MATRIX": "f32[128,128]",
    "ROW": "f32[8,128]",
    "SCHEDULED": "HloModule m, is_scheduled=true",
    "DONATED": "input_output_alias={ {0}: (0, {}, may-alias) }",
    "TIMES": "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "ELEMENT": "get-tuple-element",
    "UPDATE": "dynamic-update-slice",
    "SUMMED": "all-reduce",
    "OF_TWO": "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add",
    "SUM": "add {\n p = f32[] parameter(0)\n q = f32[] parameter(1)\n ROOT r = f32[] add(p, q) }",
    # The computations of a loop over a state, or over one matrix.
    "CONDITION": "p = STATE parameter(0)\n n = s32[] ELEMENT(p), index=0\n five = s32[] constant(5)\n"
    " ROOT c = pred[] compare(n, five), direction=LT",
    "GIVEN": "p = STATE parameter(0)\n n = s32[] ELEMENT(p), index=0\n a = MATRIX ELEMENT(p), index=1\n"
    " b = MATRIX ELEMENT(p), index=2\n one = s32[] constant(1)\n zero = s32[] constant(0)\n j = s32[] add(n, one)",
    "CORNER": "p = MATRIX parameter(0)\n s = f32[1,1] slice(p), slice={[0:1], [0:1]}\n r = f32[] reshape(s)\n"
    " five = f32[] constant(5)\n ROOT c = pred[] compare(r, five), direction=LT",
    "NINES": "nine = f32[] constant(9)\n u = ROW broadcast(nine), dimensions={}\n z = s32[] constant(0)",
    # What the entry begins and ends with if it runs such a loop.
    "BEGIN": "x = MATRIX parameter(0)\n y = MATRIX parameter(1)\n zero = s32[] constant(0)\n"
    " start = STATE tuple(zero, x, y)\n end = STATE while(start), condition=more, body=step\n"
    " a = MATRIX ELEMENT(end), index=1\n b = MATRIX ELEMENT(end), index=2",
}
"""What the words of the cases stand for."""


def written_out(case: str) -> str:
    """Return the HLO text of a case."""
    # A word may stand for others.
    for _ in range(3):
        for word, text in WORDS.items():
            case = case.replace(word, text)
    return case


LOOP = "ENTRY e { BEGIN\n ROOT out = PAIR tuple(a, b) }"

CASES = {
    "a product reads what rows are then added to": """HloModule m
add {
 p = f32[] parameter(0)
 q = f32[] parameter(1)
 ROOT r = f32[] add(p, q) }
ENTRY e {
 x = MATRIX parameter(0)
 s = MATRIX sine(x)
 d = MATRIX dot(s, x), TIMES
 i = s32[4,1] parameter(1)
 v = f32[4,128] parameter(2)
 new = MATRIX scatter(s, i, v), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
  index_vector_dim=1, to_apply=add
 ROOT out = PAIR tuple(d, new) }""",
    "the longest way through a program leads through the update": """HloModule m
ENTRY e {
 x = MATRIX parameter(0)
 w = f32[128,8192] parameter(1)
 NINES
 s = MATRIX dot(x, x), TIMES
 wide = f32[128,8192] dot(s, w), TIMES
 new = MATRIX UPDATE(s, u, z, z)
 q = MATRIX dot(new, new), TIMES
 v = f32[128,7168] slice(w), slice={[0:128], [0:7168]}
 r = f32[128,7168] dot(q, v), TIMES
 few = f32[128,8] slice(r), slice={[0:128], [0:8]}
 ROOT out = (f32[128,8192], f32[128,8]) tuple(wide, few) }""",
    "a loop swaps its arrays behind a barrier": f"""HloModule m
more {{ CONDITION }}
step {{ GIVEN
 t = STATE tuple(j, b, a)
 ROOT out = STATE opt-barrier(t) }}
{LOOP}""",
    "a loop makes two products behind a barrier": f"""HloModule m
more {{ CONDITION }}
step {{ GIVEN
 d = MATRIX dot(a, b), TIMES
 q = MATRIX dot(a, a), TIMES
 t = STATE tuple(j, d, q)
 ROOT out = STATE opt-barrier(t) }}
{LOOP}""",
    "a loop returns what a conditional does, which swaps": f"""HloModule m
more {{ CONDITION }}
pass {{ GIVEN
 ROOT out = STATE tuple(j, a, b) }}
multiply {{ GIVEN
 d = MATRIX dot(a, b), TIMES
 q = MATRIX dot(a, a), TIMES
 ROOT out = STATE tuple(j, d, q) }}
step {{ GIVEN
 swapped = STATE tuple(n, b, a)
 ROOT out = STATE conditional(n, swapped, p), branch_computations={{pass, multiply}} }}
{LOOP}""",
    "a loop returns what one of three branches does": f"""HloModule m
more {{ CONDITION }}
turn {{ GIVEN
 t = MATRIX transpose(a), dimensions={{1,0}}
 ROOT out = STATE tuple(j, t, a) }}
double {{ GIVEN
 d = MATRIX add(a, a)
 ROOT out = STATE tuple(j, d, b) }}
update {{ GIVEN
 NINES
 new = MATRIX UPDATE(a, u, z, z)
 s = MATRIX add(a, b)
 ROOT out = STATE tuple(j, new, s) }}
step {{ GIVEN
 swapped = STATE tuple(n, b, a)
 ROOT out = STATE conditional(n, p, swapped, p), branch_computations={{turn, double, update}} }}
{LOOP}""",
    "a loop returns what another does, which is given its arrays swapped": f"""HloModule m
more {{ CONDITION }}
once {{ CONDITION }}
inner {{ GIVEN
 d = MATRIX dot(a, b), TIMES
 ROOT out = STATE tuple(j, d, a) }}
step {{ GIVEN
 swapped = STATE tuple(j, b, a)
 ROOT out = STATE while(swapped), condition=once, body=inner }}
{LOOP}""",
    "a loop updates one array and makes another of it": f"""HloModule m
more {{ CONDITION }}
step {{ GIVEN
 NINES
 new = MATRIX UPDATE(b, u, n, z)
 q = MATRIX dot(a, a), TIMES
 ROOT out = STATE tuple(j, new, q) }}
{LOOP}""",
    "a loop updates one of the arrays that it swaps": f"""HloModule m
more {{ CONDITION }}
step {{ GIVEN
 NINES
 new = MATRIX UPDATE(b, u, n, z)
 ROOT out = STATE tuple(j, new, a) }}
{LOOP}""",
    "a loop updates the sum of what it carries on as it is": """HloModule m, num_partitions=2
SUM
more { CONDITION }
step { GIVEN
 w = MATRIX SUMMED(a), channel_id=1, OF_TWO
 u = ROW slice(b), slice={[0:8], [0:128]}
 new = MATRIX UPDATE(w, u, zero, zero)
 d = MATRIX dot(new, b), TIMES
 ROOT out = STATE tuple(j, a, d) }
ENTRY e { BEGIN
 ROOT out = MATRIX tanh(b) }""",
    "a loop carries something on as it is, and its sum": """HloModule m, num_partitions=2
SUM
more { CONDITION }
step { GIVEN
 w = MATRIX SUMMED(a), channel_id=1, OF_TWO
 ROOT out = STATE tuple(j, a, w) }
ENTRY e { BEGIN
 ROOT out = MATRIX tanh(b) }""",
    "of three sums that are alike one is of what is updated for another": """HloModule m, num_partitions=2, DONATED
SUM
ENTRY e {
 x = MATRIX parameter(0)
 y = MATRIX parameter(1)
 s = MATRIX sine(x)
 d = MATRIX dot(s, y), TIMES
 one = MATRIX SUMMED(d), channel_id=1, OF_TWO
 NINES
 new = MATRIX UPDATE(d, u, z, z)
 q = MATRIX dot(new, new), TIMES
 two = MATRIX SUMMED(q), channel_id=2, OF_TWO
 three = MATRIX SUMMED(y), channel_id=3, OF_TWO
 ROOT out = (MATRIX, MATRIX, MATRIX) tuple(three, one, two) }""",
    "what is returned is sent as one tuple, and then updated": """HloModule m
ENTRY e {
 x = MATRIX parameter(0)
 s = MATRIX sine(x)
 NINES
 out = PAIR tuple(s, x)
 k = token[] after-all()
 o = token[] outfeed(out, k), outfeed_shape=PAIR
 new = MATRIX UPDATE(s, u, z, z)
 d = MATRIX dot(new, x), TIMES
 o2 = token[] outfeed(d, o), outfeed_shape=MATRIX
 ROOT same = PAIR tuple(s, x) }""",
    "the state of a loop is a matrix that it multiplies by itself": """HloModule m
more { CORNER }
step {
 p = MATRIX parameter(0)
 ROOT d = MATRIX dot(p, p), TIMES }
ENTRY e {
 x = MATRIX parameter(0)
 ROOT end = MATRIX while(x), condition=more, body=step }""",
    "the state of a loop is a matrix that is turned or multiplied": """HloModule m
more { CORNER }
turn {
 p = MATRIX parameter(0)
 ROOT t = MATRIX transpose(p), dimensions={1,0} }
multiply {
 p = MATRIX parameter(0)
 ROOT d = MATRIX dot(p, p), TIMES }
step {
 p = MATRIX parameter(0)
 s = f32[1,1] slice(p), slice={[0:1], [0:1]}
 r = f32[] reshape(s)
 n = s32[] convert(r)
 ROOT out = MATRIX conditional(n, p, p), branch_computations={turn, multiply} }
ENTRY e {
 x = MATRIX parameter(0)
 ROOT end = MATRIX while(x), condition=more, body=step }""",
    "the state of a loop is an argument that it updates": """HloModule m
more { CORNER }
step {
 p = MATRIX parameter(0)
 NINES
 ROOT new = MATRIX UPDATE(p, u, z, z) }
ENTRY e {
 x = MATRIX parameter(0)
 end = MATRIX while(x), condition=more, body=step
 ROOT out = PAIR tuple(end, x) }""",
    "the state of a loop is an argument, of which a part is read afterwards": """HloModule m
more { CONDITION }
step { GIVEN
 t = MATRIX negate(a)
 ROOT out = STATE tuple(j, t, b) }
ENTRY e {
 p = STATE parameter(0)
 x = MATRIX ELEMENT(p), index=1
 end = STATE while(p), condition=more, body=step
 a = MATRIX ELEMENT(end), index=1
 more = MATRIX exponential(x)
 ROOT out = PAIR tuple(a, more) }""",
    "a loop hands on what the next one updates, and it is read afterwards": """HloModule m
more { CONDITION }
more2 { CONDITION }
step { GIVEN
 d = MATRIX negate(b)
 ROOT out = STATE tuple(j, a, d) }
step2 { GIVEN
 NINES
 new = MATRIX UPDATE(a, u, n, z)
 ROOT out = STATE tuple(j, new, b) }
ENTRY e {
 x = MATRIX parameter(0)
 s = MATRIX sine(x)
 zero = s32[] constant(0)
 start = STATE tuple(zero, s, x)
 end = STATE while(start), condition=more, body=step
 a = MATRIX ELEMENT(end), index=1
 start2 = STATE tuple(zero, a, x)
 end2 = STATE while(start2), condition=more2, body=step2
 n = s32[] ELEMENT(end2), index=0
 part = ROW dynamic-slice(s, n, zero), dynamic_slice_sizes={8,128}
 ROOT out = (ROW) tuple(part) }""",
    "a loop hands on what is updated and returned as it was": """HloModule m
more { CONDITION }
step { GIVEN
 ROOT out = STATE tuple(j, a, a) }
ENTRY e {
 x = MATRIX parameter(0)
 s = MATRIX sine(x)
 zero = s32[] constant(0)
 start = STATE tuple(zero, s, x)
 end = STATE while(start), condition=more, body=step
 a = MATRIX ELEMENT(end), index=1
 NINES
 new = MATRIX UPDATE(a, u, z, z)
 ROOT out = PAIR tuple(new, s) }""",
    "one branch hands on both arguments, the other makes new ones": """HloModule m
pass {
 p = PAIR parameter(0)
 a = MATRIX ELEMENT(p), index=0
 b = MATRIX ELEMENT(p), index=1
 ROOT out = PAIR tuple(a, b) }
multiply {
 p = PAIR parameter(0)
 a = MATRIX ELEMENT(p), index=0
 b = MATRIX ELEMENT(p), index=1
 d = MATRIX dot(a, b), TIMES
 t = MATRIX transpose(b), dimensions={1,0}
 ROOT out = PAIR tuple(d, t) }
ENTRY e {
 n = s32[] parameter(0)
 x = MATRIX parameter(1)
 y = MATRIX parameter(2)
 given = PAIR tuple(x, y)
 c = PAIR conditional(n, given, given), branch_computations={pass, multiply}
 a = MATRIX ELEMENT(c), index=0
 b = MATRIX ELEMENT(c), index=1
 ROOT out = PAIR tuple(a, b) }""",
    "an array is updated and returned from behind a barrier": """HloModule m
ENTRY e {
 x = MATRIX parameter(0)
 s = MATRIX sine(x)
 c = MATRIX cosine(x)
 t = PAIR tuple(s, c)
 kept = PAIR opt-barrier(t)
 a = MATRIX ELEMENT(kept), index=0
 NINES
 new = MATRIX UPDATE(s, u, z, z)
 b = MATRIX ELEMENT(kept), index=1
 ROOT out = (MATRIX, MATRIX, MATRIX) tuple(a, new, b) }""",
    "a donated argument is read when the result has been made": """HloModule m, DONATED
ENTRY e {
 x = MATRIX parameter(0)
 y = MATRIX parameter(1)
 a = MATRIX add(y, y)
 d = MATRIX dot(a, a), TIMES
 q = MATRIX dot(d, x), TIMES
 ROOT out = PAIR tuple(d, q) }""",
    "what is made of a row is returned twice, and a loop writes over the row": """HloModule m
more { p = (s32[], f32[128]) parameter(0)
 n = s32[] ELEMENT(p), index=0
 five = s32[] constant(5)
 ROOT c = pred[] compare(n, five), direction=LT }
step { p = (s32[], f32[128]) parameter(0)
 n = s32[] ELEMENT(p), index=0
 a = f32[128] ELEMENT(p), index=1
 one = s32[] constant(1)
 j = s32[] add(n, one)
 d = f32[128] negate(a)
 ROOT out = (s32[], f32[128]) tuple(j, d) }
ENTRY e {
 x = f32[128] parameter(0)
 zero = s32[] constant(0)
 v = f32[128] sine(x)
 b = MATRIX broadcast(v), dimensions={1}
 start = (s32[], f32[128]) tuple(zero, v)
 end = (s32[], f32[128]) while(start), condition=more, body=step
 a = f32[128] ELEMENT(end), index=1
 ROOT out = (MATRIX, f32[128], MATRIX) tuple(b, a, b) }""",
    "an argument is returned twice from a tuple in a tuple behind a barrier": """HloModule m
ENTRY e {
 x = MATRIX parameter(0)
 inner = (MATRIX) tuple(x)
 outer = ((MATRIX)) tuple(inner)
 kept = ((MATRIX)) opt-barrier(outer)
 first = (MATRIX) ELEMENT(kept), index=0
 a = MATRIX ELEMENT(first), index=0
 ROOT out = PAIR tuple(a, a) }""",
    "an argument is given away, and returned from a tuple in a tuple": """HloModule m, DONATED
ENTRY e {
 x = MATRIX parameter(0)
 inner = (MATRIX) tuple(x)
 outer = ((MATRIX)) tuple(inner)
 kept = ((MATRIX)) opt-barrier(outer)
 first = (MATRIX) ELEMENT(kept), index=0
 a = MATRIX ELEMENT(first), index=0
 d = MATRIX dot(x, x), TIMES
 ROOT out = PAIR tuple(d, a) }""",
    "one branch hands a tuple in a tuple on, the other makes a new one": """HloModule m
multiply {
 p = (s32[], (MATRIX)) parameter(0)
 inner = (MATRIX) ELEMENT(p), index=1
 x = MATRIX ELEMENT(inner), index=0
 d = MATRIX dot(x, x), TIMES
 made = (MATRIX) tuple(d)
 n = s32[] ELEMENT(p), index=0
 ROOT out = (s32[], (MATRIX)) tuple(n, made) }
pass { ROOT p = (s32[], (MATRIX)) parameter(0) }
ENTRY e {
 n = s32[] parameter(0)
 x = MATRIX parameter(1)
 inner = (MATRIX) tuple(x)
 given = (s32[], (MATRIX)) tuple(n, inner)
 chosen = (s32[], (MATRIX)) conditional(n, given, given), branch_computations={multiply, pass}
 made = (MATRIX) ELEMENT(chosen), index=1
 y = MATRIX ELEMENT(made), index=0
 ROOT sum = MATRIX add(y, x) }""",
    "a loop swaps the arrays of a tuple in its state": """HloModule m
more { p = (s32[], PAIR) parameter(0)
 n = s32[] ELEMENT(p), index=0
 five = s32[] constant(5)
 ROOT c = pred[] compare(n, five), direction=LT }
step { p = (s32[], PAIR) parameter(0)
 n = s32[] ELEMENT(p), index=0
 both = PAIR ELEMENT(p), index=1
 a = MATRIX ELEMENT(both), index=0
 b = MATRIX ELEMENT(both), index=1
 one = s32[] constant(1)
 j = s32[] add(n, one)
 swapped = PAIR tuple(b, a)
 ROOT out = (s32[], PAIR) tuple(j, swapped) }
ENTRY e {
 both = PAIR parameter(0)
 zero = s32[] constant(0)
 start = (s32[], PAIR) tuple(zero, both)
 end = (s32[], PAIR) while(start), condition=more, body=step
 ROOT out = PAIR ELEMENT(end), index=1 }""",
    "the arrays of the caller are returned in tuples in tuples": """HloModule m
ENTRY e {
 x = MATRIX parameter(0)
 p = (PAIR) parameter(1)
 both = PAIR ELEMENT(p), index=0
 mixed = PAIR tuple(x, x)
 ROOT out = (PAIR, PAIR, PAIR, MATRIX) tuple(both, mixed, mixed, x) }""",
    "what is under way to a neighbour is updated": """HloModule m, num_partitions=4
ENTRY e {
 x = MATRIX parameter(0)
 NINES
 y = MATRIX dot(x, x), TIMES
 c = MATRIX collective-permute(y), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
 new = MATRIX UPDATE(y, u, z, z)
 d = MATRIX dot(new, new), TIMES
 ROOT out = MATRIX add(c, d) }""",
}
"""By what happens in them."""

TWO_RESULTS = """SCHEDULED
ENTRY e {
 x = MATRIX parameter(0)
 s = MATRIX sine(x)
 t = MATRIX cosine(x)
 ROOT out = PAIR tuple(s, HERE) }"""

BY_HAND = {
    "what was updated is read": (
        """SCHEDULED
ENTRY e {
 x = MATRIX parameter(0)
 NINES
 s = MATRIX sine(x)
 new = MATRIX UPDATE(s, u, z, z)
 ROOT d = MATRIX dot(HERE, new), TIMES }""",
        *("s", "x", "e/d reads s, which was written over"),
    ),
    "an argument is updated": (
        """SCHEDULED
ENTRY e {
 x = MATRIX parameter(0)
 NINES
 s = MATRIX sine(x)
 ROOT new = MATRIX UPDATE(HERE, u, z, z) }""",
        *("x", "s", "e/new is written over x, which has to stay as it is"),
    ),
    "a constant is updated": (
        """SCHEDULED
ENTRY e {
 x = MATRIX parameter(0)
 NINES
 c = MATRIX constant({...})
 s = MATRIX sine(x)
 ROOT new = MATRIX UPDATE(HERE, u, z, z) }""",
        *("c", "s", "e/new is written over c, which has to stay as it is"),
    ),
    "what one of two branches may have updated is read": (
        """SCHEDULED
update { GIVEN
 NINES
 ROOT new = MATRIX UPDATE(a, u, z, z) }
negate { GIVEN
 ROOT new = MATRIX negate(b) }
ENTRY e {
 n = s32[] parameter(0)
 x = MATRIX parameter(1)
 s = MATRIX sine(x)
 both = STATE tuple(n, s, x)
 chosen = MATRIX conditional(n, both, both), branch_computations={update, negate}
 ROOT d = MATRIX dot(HERE, chosen), TIMES }""",
        *("s", "x", "e/d reads s, which was written over"),
    ),
    "a loop swaps its arrays": (
        """SCHEDULED
more { CONDITION }
step { GIVEN
 ROOT out = STATE tuple(j, HERE) }
ENTRY e {
 x = MATRIX parameter(0)
 zero = s32[] constant(0)
 s = MATRIX sine(x)
 t = MATRIX cosine(x)
 start = STATE tuple(zero, s, t)
 end = STATE while(start), condition=more, body=step
 first = MATRIX ELEMENT(end), index=1
 second = MATRIX ELEMENT(end), index=2
 ROOT d = MATRIX dot(first, second), TIMES }""",
        *("b, a", "a, b", "e/d reads s, which was written over"),
    ),
    "what is under way is updated": (
        """SCHEDULED
ENTRY e {
 x = MATRIX parameter(0)
 NINES
 s = MATRIX sine(x)
 t = MATRIX cosine(x)
 start = (MATRIX, MATRIX) collective-permute-start(s), source_target_pairs={{0,0}}
 new = MATRIX UPDATE(HERE, u, z, z)
 done = MATRIX collective-permute-done(start)
 ROOT d = MATRIX dot(done, new), TIMES }""",
        *("s", "t", "e/start reads s, which was written over"),
    ),
    "an array comes in where the one lies that is sent": (
        """SCHEDULED, DONATED
ENTRY e {
 x = MATRIX parameter(0)
 s = MATRIX sine(x)
 start = (MATRIX, MATRIX) collective-permute-start(HERE), source_target_pairs={{0,0}}
 done = MATRIX collective-permute-done(start)
 ROOT out = (MATRIX) tuple(done) }""",
        *("x", "s", "e/start is written over x before it has read it"),
    ),
    "an array is returned twice": (
        TWO_RESULTS,
        *("s", "t", "two results, s and s, share memory"),
    ),
    "an argument is returned": (
        TWO_RESULTS,
        *("x", "t", "the result x lies in x, which has to stay as it is"),
    ),
    "an argument is turned where it lies": (
        """SCHEDULED, DONATED
ENTRY e {
 x = MATRIX parameter(0)
 t = MATRIX HERE
 ROOT out = (MATRIX) tuple(t) }""",
        *("transpose(x), dimensions={1,0}", "negate(x)", "e/t is written over x before it has read it"),
    ),
    "a kernel turns an argument where it lies": (
        """SCHEDULED, DONATED
kernel {
 p = MATRIX parameter(0)
 n = MATRIX negate(p)
 ROOT r = MATRIX HERE }
ENTRY e {
 x = MATRIX parameter(0)
 t = MATRIX fusion(x), kind=kLoop, calls=kernel
 ROOT out = (MATRIX) tuple(t) }""",
        *("reverse(n), dimensions={0}", "add(n, p)", "e/t is written over x before it has read it"),
    ),
    "one of two arrays that are sorted lies where the other does": (
        """SCHEDULED, input_output_alias={ HERE: (0, {}, may-alias) }
lt { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 ROOT less = pred[] compare(a, b), direction=LT }
ENTRY e {
 x = MATRIX parameter(0)
 y = MATRIX parameter(1)
 ROOT out = PAIR sort(x, y), dimensions={1}, to_apply=lt }""",
        *("{1}", "{0}", "e/out is written over x before it has read it"),
    ),
    "a kernel writes over what its author does not say": (
        """SCHEDULED, DONATED
ENTRY e {
 x = MATRIX parameter(0)
 y = MATRIX custom-call(x), custom_call_target="mine"HERE
 ROOT out = (MATRIX) tuple(y) }""",
        *("", ", output_to_operand_aliasing={{}: (0, {})}", "e/y is written over x before it has read it"),
    ),
    "two arguments lie where one result does": (
        """SCHEDULED, input_output_alias={ {0}: (0, {}, may-alias) }, buffer_donor={ (1, {}) }
ENTRY e {
 x = MATRIX parameter(0)
 y = MATRIX parameter(1)
 t = MATRIX sine(y)
 ROOT out = (MATRIX) tuple(HERE) }""",
        *("y", "t", "y is written over x, which has to stay as it is"),
    ),
}
"""By what is wrong with them: a text, what stands in ``HERE`` if it is wrong and if it is right, what is reported."""
