"""Programs at random in which arrays are handed on, swapped, updated in place, kept behind barriers, returned twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

ROWS = {"f32[128,128]": "f32[8,128]", "f32[256,256]": "f32[8,256]"}
"""By the type of a matrix that of the rows that are written into it at once."""

MATRICES = tuple(ROWS)
MOST_STEPS = 24
MOST_DEPTH = 3


def program(seed: int) -> str:
    """Return the text of a module that is not scheduled, the same for the same seed."""
    random = Random(seed)
    code = Code(random, is_partitioned=random.random() < 0.25)
    entry = Block(code)
    entry.counter = entry.add("s32[]", "parameter(0)")
    parameters = [entry.counter]
    for number in range(1, random.randint(2, 4)):
        parameters.append(entry.make(random.choice([*MATRICES, "f32[8,128]"]), f"parameter({number})"))
    if random.random() < 0.2:
        kind = tuple_of(["s32[]", *random.choices(MATRICES, k=2)])
        parameters.append(entry.take_apart(entry.add(kind, f"parameter({len(parameters)})")))
    entry.take_steps(random.randint(4, 12))
    results = [entry.any() for _ in range(random.randint(1, 4))]
    # Some as they were given, or twice.
    arguments = [name for name in parameters if code.types[name].startswith("f32")]
    results += random.sample([*arguments, *results], random.choice((0, 0, 1, 2)))
    root = entry.pack(results)
    entry.finish(root if random.random() < 0.8 else entry.add(code.types[root], f"opt-barrier({root})"))
    header = _donations(random, [code.types[name] for name in results], [code.types[name] for name in parameters])
    partitions = ", num_partitions=4" if code.is_partitioned else ""
    *called, own = code.computations
    return f"HloModule m{partitions}{header}\n{''.join(called)}ENTRY {own}"


def _donations(random: Random, results: Sequence[str], parameters: Sequence[str]) -> str:
    """Return what a header says of arguments that are given away, some for a result of their type."""
    aliases, donors = dict[int, str](), list[str]()
    for number, kind in enumerate(parameters):
        fitting = [at for at, result in enumerate(results) if result == kind and at not in aliases]
        chance = random.random()
        if fitting and chance < 0.4:
            at = random.choice(fitting)
            aliases[at] = f"{{{at}}}: ({number}, {{}}, may-alias)"
        elif kind.startswith("f32") and chance > 0.85:
            donors.append(f"({number}, {{}})")
    header = f", input_output_alias={{ {', '.join(aliases.values())} }}" if aliases else ""
    return header + (f", buffer_donor={{ {', '.join(donors)} }}" if donors else "")


def tuple_of(kinds: Sequence[str]) -> str:
    """Return the type of a tuple of these."""
    return f"({', '.join(kinds)})"


def elements(kind: str) -> list[str]:
    """Return the types of a tuple's elements; an array is its own one."""
    return kind.strip("()").split(", ")


@dataclass
class Code:
    """A module in the making: its computations so far, and the type of every value by its name."""

    random: Random
    is_partitioned: bool
    computations: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    n_steps: int = 0
    n_names: int = 0

    def new_name(self) -> str:
        """Return a name that nothing has yet."""
        self.n_names += 1
        return f"v{self.n_names}"


@dataclass
class Block:
    """A computation in the making: its lines, its arrays, its tuples (of a number and arrays), and that number."""

    code: Code
    depth: int = 0
    lines: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    wholes: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    counter: str = ""
    # Devices may take different branches: what all have to do together is in none.
    is_branch: bool = False

    def __post_init__(self) -> None:
        self.random = self.code.random

    def type_of(self, name: str) -> str:
        """Return the type of a value."""
        return self.code.types[name]

    def add(self, kind: str, expression: str) -> str:
        """Write an instruction, and return its name."""
        name = self.code.new_name()
        self.code.types[name] = kind
        self.lines.append(f" {name} = {kind} {expression}\n")
        return name

    def make(self, kind: str, expression: str) -> str:
        """Write an instruction, whose array may be used, and return its name."""
        self.values.append(self.add(kind, expression))
        return self.values[-1]

    def any(self) -> str:
        """Return an array, mostly one of the last."""
        if not self.values:
            return self.fill(self.random.choice(MATRICES))
        return self.random.choice(self.values[-4:] if self.random.random() < 0.5 else self.values)

    def of_type(self, kind: str) -> str:
        """Return an array of a type."""
        found = [name for name in self.values if self.type_of(name) == kind]
        if not found or self.random.random() < 0.03:
            return self.fill(kind)
        return self.random.choice(found[-3:] if self.random.random() < 0.4 else found)

    def spend(self, name: str) -> str:
        """Return an array, for which from now on maybe nobody asks any more."""
        if self.random.random() < 0.5:
            self.values = [value for value in self.values if value != name]
        return name

    def matrix(self) -> str:
        """Return a matrix."""
        return self.of_type(self.random.choice(MATRICES))

    def fill(self, kind: str) -> str:
        """Return a new array with one number everywhere."""
        number = self.add("f32[]", f"constant({self.random.randint(1, 9)})")
        return self.make(kind, f"broadcast({number}), dimensions={{}}")

    def pack(self, names: Sequence[str]) -> str:
        """Return a tuple."""
        return self.add(tuple_of([self.type_of(name) for name in names]), f"tuple({', '.join(names)})")

    def whole(self) -> str:
        """Return a tuple that was there before, or one of arrays, of which some may be the same."""
        if self.wholes and self.random.random() < 0.25:
            return self.random.choice(self.wholes)
        arrays = [self.any() for _ in range(self.random.randint(1, 4))]
        return self.pack([self.counter, *map(self.spend, arrays)])

    def take_apart(self, whole: str) -> str:
        """Let a tuple be used, as it is and its elements, and return its name."""
        self.wholes.append(whole)
        for at, kind in list(enumerate(elements(self.type_of(whole))))[1:]:
            self.make(kind, f"get-tuple-element({whole}), index={at}")
        return whole

    def inner(self, kind: str) -> Block:
        """Return a computation that is given an array, or a tuple that begins with a number."""
        block = Block(self.code, self.depth + 1, is_branch=self.is_branch)
        if kind.startswith("("):
            parameter = block.add(kind, "parameter(0)")
            block.counter = block.add("s32[]", f"get-tuple-element({parameter}), index=0")
            block.take_apart(parameter)
        else:
            block.make(kind, "parameter(0)")
            block.counter = block.add("s32[]", "constant(1)")
        block.given = [block.counter, *block.values] if kind.startswith("(") else block.values[:]
        return block

    def result(self, kind: str) -> str:
        """Return something of a type, which may be a tuple."""
        if not kind.startswith("("):
            return self.of_type(kind)
        found = [whole for whole in self.wholes if self.type_of(whole) == kind]
        if found and self.random.random() < 0.15:
            return found[-1]
        one = self.add("s32[]", "constant(1)")
        names = [self.add("s32[]", f"add({self.counter}, {one})")]
        for at, element in list(enumerate(elements(kind)))[1:]:
            is_own = at < len(self.given) and self.type_of(self.given[at]) == element
            # Handed on as it is, or what there is: another one, or one that was made of it.
            names.append(self.given[at] if is_own and self.random.random() < 0.25 else self.of_type(element))
        whole = self.pack(names)
        return self.add(kind, f"opt-barrier({whole})") if self.random.random() < 0.15 else whole

    def finish(self, root: str) -> str:
        """Put the computation, which returns this, into the module, and return its name."""
        lines = [f" ROOT{line}" if line.startswith(f" {root} = ") else line for line in self.lines]
        name = self.code.new_name()
        self.code.computations.append(f"{name} {{\n{''.join(lines)}}}\n")
        return name

    def take_steps(self, count: int) -> None:
        """Write so many operations, as long as the module is not too long."""
        for _ in range(count):
            self.code.n_steps += 1
            if self.code.n_steps <= MOST_STEPS:
                (step,) = self.random.choices(list(STEPS), weights=list(STEPS.values()))
                step(self)


def _combine(block: Block) -> None:
    one = block.any()
    kind = block.type_of(one)
    block.make(kind, f"{block.random.choice(('add', 'multiply'))}({one}, {block.of_type(kind)})")


def _change(block: Block) -> None:
    one = block.any()
    block.make(block.type_of(one), f"{block.random.choice(('negate', 'tanh', 'copy'))}({one})")


def _reverse(block: Block) -> None:
    one = block.any()
    block.make(block.type_of(one), f"reverse({one}), dimensions={{{block.random.randint(0, 1)}}}")


def _turn(block: Block) -> None:
    one = block.matrix()
    block.make(block.type_of(one), f"transpose({one}), dimensions={{1,0}}")


def _multiply(block: Block) -> None:
    one = block.matrix()
    kind = block.type_of(one)
    block.make(kind, f"dot({one}, {block.of_type(kind)}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")


def _cut(block: Block) -> None:
    _cut_from(block, block.matrix())


def _cut_from(block: Block, matrix: str) -> str:
    """Return the first rows of a matrix."""
    rows = ROWS[block.type_of(matrix)]
    columns = rows.strip("f32[]").partition(",")[2]
    return block.make(rows, f"slice({matrix}), slice={{[0:8], [0:{columns}]}}")


def _update(block: Block) -> None:
    _update_of(block, block.spend(block.matrix()))


def _update_of(block: Block, matrix: str) -> None:
    """Write rows into a matrix: of itself, of another, or any."""
    kind = block.type_of(matrix)
    source = block.random.choice((matrix, block.of_type(kind), ""))
    rows = _cut_from(block, source) if source else block.of_type(ROWS[kind])
    zero = block.add("s32[]", "constant(0)")
    first = block.random.choice((zero, block.counter))
    block.make(kind, f"dynamic-update-slice({matrix}, {rows}, {first}, {zero})")


def _keep(block: Block) -> None:
    """Put arrays behind a barrier."""
    whole = block.whole()
    block.take_apart(block.add(block.type_of(whole), f"opt-barrier({whole})"))


def _send(block: Block) -> None:
    """Send a matrix to the next device, and mostly write over it."""
    if not block.code.is_partitioned or block.is_branch:
        return
    matrix = block.matrix()
    sent = f"channel_id={block.code.n_names}, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}"
    block.make(block.type_of(matrix), f"collective-permute({matrix}), {sent}")
    if block.random.random() < 0.7:
        _update_of(block, matrix)


def _loop(block: Block) -> None:
    """Run a loop over a tuple or over a single array."""
    if block.depth >= MOST_DEPTH:
        return
    state = block.spend(block.matrix()) if block.random.random() < 0.1 else block.whole()
    kind = block.type_of(state)
    condition = block.inner(kind)
    if kind.startswith("("):
        count, most = condition.counter, condition.add("s32[]", "constant(5)")
    else:
        corner = condition.add("f32[1,1]", f"slice({condition.values[0]}), slice={{[0:1], [0:1]}}")
        count, most = condition.add("f32[]", f"reshape({corner})"), condition.add("f32[]", "constant(5)")
    is_next = condition.add("pred[]", f"compare({count}, {most}), direction=LT")
    more = condition.finish(is_next)
    body = block.inner(kind)
    body.take_steps(block.random.randint(0, 5))
    step = body.finish(body.result(kind))
    _take(block, block.add(kind, f"while({state}), condition={more}, body={step}"))


def _choose(block: Block) -> None:
    """Run one of some branches, which are given tuples or single arrays and return either."""
    if block.depth >= MOST_DEPTH:
        return
    count = block.random.randint(2, 3)
    given = [block.random.choice((block.any, block.whole))() for _ in range(count)]
    if block.random.random() < 0.5:
        given = given[:1] * count
    kind = block.type_of(block.random.choice((block.any(), *given)))
    for name in given:
        block.spend(name)
    names = []
    for operand in given:
        branch = block.inner(block.type_of(operand))
        branch.is_branch = True
        branch.take_steps(block.random.randint(0, 3))
        names.append(branch.finish(branch.result(kind)))
    operands = ", ".join([block.counter, *given])
    _take(block, block.add(kind, f"conditional({operands}), branch_computations={{{', '.join(names)}}}"))


def _take(block: Block, made: str) -> None:
    """Let others use what a loop or a conditional returns."""
    if block.type_of(made).startswith("("):
        block.take_apart(made)
    else:
        block.values.append(made)


STEPS: dict[Callable[[Block], None], int] = {
    _combine: 3,
    _change: 2,
    _reverse: 1,
    _turn: 2,
    _multiply: 3,
    _cut: 1,
    _update: 4,
    _keep: 2,
    _send: 3,
    _loop: 5,
    _choose: 3,
}
"""What a computation may do next, and how often it does."""
