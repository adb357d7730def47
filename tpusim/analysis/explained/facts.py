"""What is said of an op of each kind; times in picoseconds, rates in bytes per second."""

from __future__ import annotations

import msgspec

from tpusim.analysis.answers.caveats import Caveats


class Facts(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of what is said of one kind of op."""

    @property
    def kind(self) -> str:
        """The word for it."""
        return str(self.__struct_config__.tag)


class PlainFacts(Facts, frozen=True, tag="scalar", kw_only=True):
    """An instruction of the scalar core, or the launch of a program: there is nothing inside."""


class DeviceOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Another order of the devices of a mesh: ``devices`` are those that take the places 0, 1, 2, ... of it.

    They are ``range(n)`` in the shape ``reshaped`` with its axes ``transposed``, or along a ring of neighbours where
    that has no axes; ``op_ps`` is then the collective by itself, ``run_ps`` the whole run.
    """

    reshaped: tuple[int, ...]
    transposed: tuple[int, ...]
    devices: tuple[int, ...]
    op_ps: int
    run_ps: int


class CollectiveFacts(Facts, frozen=True, tag="collective", kw_only=True):
    """Groups of devices, or ``is_pairs``, that communicate on chips along each axis (``sizes``), in ``slices``.

    ``group`` is that of the device that ended last, ``places`` where its devices sit. ``alone_ps`` is the collective of
    all groups with nothing beside it, ``unshared_ps`` that of one group, of which ``latency_ps`` are ``hops`` and
    ``steps`` of the ``algorithm``, for which the compiler may have a name of its own, ``stated``. On the busiest link
    ``sharers`` groups meet. ``reached`` is the payload over the time of the run, ``reachable`` that over the time of
    one group in the best order of devices known; ``orders`` are better ones.
    ``mesh`` is the order that the program was compiled for, where it says so; by these numbers go all others here.
    """

    payload_bytes: float
    is_pairs: bool
    groups: int
    group: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    slices: int
    hops: int
    steps: int
    latency_ps: int
    alone_ps: int
    unshared_ps: int
    busiest_link: str
    sharers: int
    reached_bytes_per_second: float
    reachable_bytes_per_second: float
    orders: tuple[DeviceOrder, ...]
    algorithm: str = ""
    stated: str = ""
    mesh: tuple[int, ...] = ()


class InnerOp(msgspec.Struct, frozen=True, kw_only=True):
    """An op inside a loop, a branch or a call: what it takes in all, and how often it runs."""

    name: str
    opcode: str
    source: str
    time_ps: int
    count: int
    bound_by: str


class InsideFacts(Facts, frozen=True, tag="inside", kw_only=True):
    """What a loop, a branch or a call runs ``times`` in all: its ops, the longest first, and what they leave.

    ``trips`` are those of one visit to a loop, 0 for what is none, and ``trips_from`` says where they are known from,
    as in a lowered program; ``branch`` is the one of ``branches`` that runs.
    """

    times: int
    ops: tuple[InnerOp, ...]
    jumps_ps: int
    trips: int = 0
    trips_from: str = ""
    branch: int = -1
    branches: int = 0


class TransferFacts(Facts, frozen=True, tag="transfer", kw_only=True):
    """Bytes that move ``origin`` to ``target``: at which rate, and at which they could.

    ``exposed_ps`` is how long the core waited for it, in ``waited_by``; ``shared_with`` are ops that used the same
    memory at the same time.
    """

    n_bytes: float
    origin: str
    target: str
    latency_ps: int
    run_bytes: int
    reached_bytes_per_second: float
    reachable_bytes_per_second: float
    exposed_ps: int
    waited_by: tuple[str, ...]
    shared_with: tuple[str, ...]


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """What a wait is for: when it began and how long it took, and how much of that the core hid.

    ``ready_ps`` is how long before its start all that it takes had been there, None where the text does not tell.
    """

    name: str
    opcode: str
    took_ps: int
    hidden_ps: int
    issued_after: str
    ready_ps: int | None
    ready_after: str


class WaitFacts(Facts, frozen=True, tag="wait", kw_only=True):
    """A wait of the core; all times are of one execution."""

    waited_ps: int
    awaited: tuple[Awaited, ...]


AnyFacts = PlainFacts | CollectiveFacts | InsideFacts | TransferFacts | WaitFacts


class StepExplanation(Caveats, frozen=True, kw_only=True):
    """Why an op that is no kernel takes as long as it does.

    ``time_ps`` is what the core spent on all ``count`` executions, ``beside_ps`` what ran beside it, ``path_ps`` what
    the end of the run owes to it. ``bounds_ps`` says where its time went. ``slack_ps`` is how much later one execution
    may start for nothing.
    """

    name: str
    opcode: str
    what: str
    program: str
    chip: str
    source: str
    op_name: str
    line: int
    count: int
    run_ps: int
    time_ps: int
    beside_ps: int
    path_ps: int
    slack_ps: int
    bounds_ps: dict[str, int]
    facts: AnyFacts
