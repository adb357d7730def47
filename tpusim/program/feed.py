"""How fast the host makes infeeds ready, or takes outfeeds: a pace, and how many may wait.

Written ``50us``; ``normal:50us:5us:7`` or ``exponential:50us:7`` (mean, deviation, seed); or the name of a file with
one time per line in microseconds, after whose last line the host has no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING

import msgspec

from tpusim.errors import ConfigError
from tpusim.files import read_text
from tpusim.limits import FEED_SECONDS, QUEUE_DEPTH, REAL, SEED
from tpusim.units import seconds_to_ps

if TYPE_CHECKING:
    from random import Random

DEFAULT_DEPTH = 2
"""Items that may wait in a queue: one on its way while another is in use."""

_PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}
# Patterns of what hardly any run is given: texts, which what asks has compiled.
_TIME = r"(?a)(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(ns|us|ms|s)"
_FORM = r"(?a)(?:(constant|normal|exponential):)?([^:]+)(?::([^:]+))?(?::(\d+))?"


class Feed(msgspec.Struct, frozen=True):
    """The host's pace at one queue, in seconds per item; ``times`` are those of a recorded file, in its order."""

    kind: str = "constant"
    mean_seconds: float = 0.0
    deviation_seconds: float = 0.0
    seed: int = 0
    times: tuple[float, ...] = ()
    depth: int = DEFAULT_DEPTH

    @property
    def has_spread(self) -> bool:
        """Whether devices draw times of their own; those of a file are the same for all."""
        spread_seconds = {"normal": self.deviation_seconds, "exponential": self.mean_seconds}
        return spread_seconds.get(self.kind, 0.0) > 0


def parse_feed(text: str, depth: int = DEFAULT_DEPTH) -> Feed:
    """Return the pace that a text or a file of that name describes; raise ConfigError for anything else."""
    match = re.fullmatch(_FORM, text.strip())
    mean = _seconds(match[2]) if match else None
    if fault := QUEUE_DEPTH.fault(depth):
        raise ConfigError(f"queue depth: {fault}")
    if match is None or mean is None:
        return Feed(kind="file", times=_times(text), depth=depth)
    kind, third, seed = match[1] or "constant", match[3], match[4]
    # An exponential has no deviation of its own, so that its second figure is the seed.
    if kind == "exponential" and third is not None and re.fullmatch("[0-9]+", third) and seed is None:
        third, seed = None, third
    deviation = _seconds(third) if third else 0.0
    if deviation is None or (kind != "normal" and third):
        raise ConfigError(f"pace of the host: expected 50us, normal:50us:5us:7 or exponential:50us:7, found {text!r}")
    number = SEED.number(seed or "0")
    for limit, found in ((FEED_SECONDS, mean), (FEED_SECONDS, deviation), (SEED, number)):
        if fault := limit.fault(found):
            raise ConfigError(f"pace of the host: {fault}")
    return Feed(kind, mean, deviation, number, (), depth)


def _seconds(text: str) -> float | None:
    match = re.fullmatch(_TIME, text.strip())
    return float(match[1]) / _PER_SECOND[match[2]] if match else None


def _times(path: str) -> tuple[float, ...]:
    forms = "expected 50us, normal:50us:5us:7, exponential:50us:7 or a file"
    lines = read_text(path, f"no pace of the host: {forms}").split()
    if wrong := next((line for line in lines if not re.fullmatch(REAL, line)), ""):
        raise ConfigError(f"{path}: expected one time per line in microseconds, found {wrong!r:.80}")
    times = tuple(float(line) / 1e6 for line in lines)
    for time in times:
        if fault := FEED_SECONDS.fault(time):
            raise ConfigError(f"{path}: {fault}")
    return times


def intervals_ps(feed: Feed, device: int = 0) -> Iterator[int]:
    """Yield how long the host takes for one item after the other, in picoseconds; every device has its own draws."""
    if feed.kind == "file":
        yield from map(seconds_to_ps, feed.times)
        return
    # A host is ready at any time, for most runs.
    from random import Random

    draws = Random(feed.seed * 1_000_003 + device)
    for _ in repeat(None):
        yield seconds_to_ps(_draw(feed, draws))


def _draw(feed: Feed, draws: Random) -> float:
    """Return one time of a distribution, in seconds; what a normal one has below 0 is 0."""
    if feed.kind == "normal":
        return max(0.0, draws.gauss(feed.mean_seconds, feed.deviation_seconds))
    if feed.kind == "exponential" and feed.mean_seconds:
        return draws.expovariate(1 / feed.mean_seconds)
    return feed.mean_seconds
