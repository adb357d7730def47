"""Programs of control flow: computations that call, repeat and choose those before them, deep and again and again."""

from __future__ import annotations

from random import Random

_COUNT, _ARRAY, _HOME = "s32[]{:T(128)}", "f32[8,128]{1,0:T(8,128)}", "f32[8,128]{1,0:T(8,128)S(1)}"
_BOTH = f"({_COUNT}, {_ARRAY})"
_TRIPS = (0, 1, 2, 3, 7, 100, 4096, 10**6, 2**31 - 1)
_SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}"


def control_flow(random: Random) -> bytes:
    """Return a scheduled module whose computations take a counter and an array and return the same."""
    devices = random.choice((1, 1, 2, 8))
    # Devices that differ are played one by one.
    deepest = 300 if devices == 1 else 12
    levels = random.choice((random.randrange(1, 7), random.randrange(1, 7), random.randrange(1, deepest)))
    limits = [_condition(number, random.choice(_TRIPS)) for number in range(3)]
    bodies = [_Body(random, level, devices).text() for level in range(levels)]
    entry = _Body(random, levels, devices).text().replace(f"c_{levels} {{", "ENTRY main {", 1)
    head = f"HloModule control, is_scheduled=true, num_partitions={devices}"
    return "\n\n".join((head, _SUM, *limits, *bodies, entry)).encode()


def _condition(number: int, trips: int) -> str:
    lines = (
        f"q = {_BOTH} parameter(0)",
        f"i = {_COUNT} get-tuple-element(q), index=0",
        f"n = {_COUNT} constant({trips})",
        "ROOT l = pred[]{:T(512)} compare(i, n), direction=LT",
    )
    return f"less_{number} {{\n  " + "\n  ".join(lines) + "\n}"


class _Body:
    """A computation under way: its lines, and the names of the counter and the array as they are now."""

    def __init__(self, random: Random, level: int, devices: int) -> None:
        self.random, self.level, self.devices = random, level, devices
        self.lines = [f"q = {_BOTH} parameter(0)", f"one = {_COUNT} constant(1)"]
        self.under_way: list[str] = []
        self._take("q")

    def text(self) -> str:
        """Return the text of the computation."""
        kinds = [self._compute, self._copy]
        kinds += [self._call, self._repeat, self._choose, self._call_beside] if self.level else []
        kinds += [self._reduce, self._permute] if self.devices > 1 else []
        for _ in range(self.random.choice((1, 2, 2, 3, 4, 200 if self.level < 3 else 2))):
            self.random.choice(kinds)()
        for done in self.under_way:
            self.lines.append(done)
        if self.random.random() < 0.9:
            self.count = self._made("i", _COUNT, f"add({self.count}, one)")
        self.lines.append(f"ROOT r = {_BOTH} tuple({self.count}, {self.array})")
        return f"c_{self.level} {{\n  " + "\n  ".join(self.lines) + "\n}"

    def _made(self, name: str, shape: str, how: str) -> str:
        name = f"{name}.{len(self.lines)}"
        self.lines.append(f"{name} = {shape} {how}")
        return name

    def _take(self, both: str) -> None:
        self.count = self._made("i", _COUNT, f"get-tuple-element({both}), index=0")
        self.array = self._made("x", _ARRAY, f"get-tuple-element({both}), index=1")

    def _given(self) -> str:
        return self._made("t", _BOTH, f"tuple({self.count}, {self.array})")

    def _callee(self) -> str:
        return f"c_{self.level - 1 if self.random.random() < 0.7 else self.random.randrange(self.level)}"

    def _compute(self) -> None:
        self.array = self._made("x", _ARRAY, f"{self.random.choice(('add', 'multiply'))}({self.array}, {self.array})")

    def _copy(self) -> None:
        start = self._made("s", f"({_HOME}, {_ARRAY}, u32[])", f"copy-start({self.array})")
        self.under_way.append(f"d{start} = {_HOME} copy-done({start})")

    def _call(self) -> None:
        for _ in range(self.random.choice((1, 2))):
            self._take(self._made("f", _BOTH, f"call({self._given()}), to_apply={self._callee()}"))

    def _call_beside(self) -> None:
        start = self._made(
            "a", f"(({_BOTH}), {_BOTH}, u32[])", f"call-start({self._given()}), to_apply={self._callee()}"
        )
        self.under_way.append(f"d{start} = {_BOTH} call-done({start})")

    def _repeat(self) -> None:
        start = self.count
        if self.random.random() < 0.7:
            self.count = self._made("z", _COUNT, "constant(0)")
        limit = self.random.randrange(3)
        self._take(self._made("w", _BOTH, f"while({self._given()}), condition=less_{limit}, body={self._callee()}"))
        self.count = self.random.choice((start, self.count))

    def _choose(self) -> None:
        asked = self.random.choice((self.count, self.count, "one"))
        if self.devices > 1 and self.random.random() < 0.3:
            asked = self._made("u", _COUNT, f"convert({self._made('p', 'u32[]{:T(128)}', 'partition-id()')})")
        index = self._made("k", _COUNT, f"and({asked}, one)")
        given, callees = self._given(), f"{self._callee()}, {self._callee()}"
        self._take(self._made("b", _BOTH, f"conditional({index}, {given}, {given}), branch_computations={{{callees}}}"))

    def _reduce(self) -> None:
        groups = f"replica_groups=[1,{self.devices}]<=[{self.devices}], use_global_device_ids=true"
        how = f"all-reduce({self.array}), channel_id={self._channel()}, {groups}, to_apply=sum"
        self.array = self._made("x", _ARRAY, how)

    def _permute(self) -> None:
        pairs = ",".join(f"{{{n},{(n + 1) % self.devices}}}" for n in range(self.devices))
        how = f"collective-permute({self.array}), channel_id={self._channel()}, source_target_pairs={{{pairs}}}"
        self.array = self._made("x", _ARRAY, how)

    def _channel(self) -> int:
        return 1 + 1000 * self.level + len(self.lines)
