"""The adapter to Ramulator 2 (CMU-SAFARI/ramulator2): a trace of loads and stores in, cycles and rows out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tpusim.errors import ConfigError
from tpusim.program.work import Stream


class Sample(NamedTuple):
    """What a sample of some streams took: bytes, cycles of the DRAM, rows that were opened."""

    n_bytes: int
    cycles: int
    rows: int


@lru_cache(maxsize=1 << 12)
def sample(
    streams: tuple[Stream, ...], device: tuple[str, str, str, str], channels: int, request_bytes: int, most: int
) -> Sample:
    """Return what the first ``most`` requests of some streams take; raise ConfigError without the package."""
    try:
        package: Any = import_module("ramulator")
    except ImportError as error:
        raise ConfigError(
            "hbm.model: 'ramulator' needs the Python package of Ramulator 2 (github.com/CMU-SAFARI/ramulator2), "
            "built with its bindings and on PYTHONPATH"
        ) from error
    lines = list(_requests(streams, request_bytes, most))
    if not lines:
        return Sample(0, 0, 0)
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        trace.write_text("\n".join(lines) + "\n")
        stats = _run(package, device, channels, str(trace))
    found = [part for name, part in stats["memory_system"].items() if name.startswith("controller")]
    rows = sum(part["row_misses"] + part["row_conflicts"] for part in found)
    return Sample(len(lines) * request_bytes, max(part["cycles"] for part in found), rows)


def _run(package: Any, device: tuple[str, str, str, str], channels: int, trace: str) -> Any:
    standard, organisation, timing, controller = device
    controllers = [
        getattr(package.controller, controller)(
            dram=getattr(package.dram, standard)(org_preset=organisation, timing_preset=timing),
            scheduler=package.scheduler.FRFCFS(),
            refresh_manager=package.refresh_manager.PerBank(),
            row_policy=package.row_policy.Open(),
            addr_mapper=package.addr_mapper.RoBaRaCoCh(),
        )
        for _ in range(channels)
    ]
    memory = package.memory_system.GenericDRAM(
        clock_ratio=1, controllers=controllers, channel_mapper=package.channel_mapper.CacheLineInterleave()
    )
    # A request for every channel in each cycle: the memory is what decides.
    simulation = package.Simulation(package.frontend.LoadStoreTrace(clock_ratio=channels, path=trace), memory)
    simulation.run()
    return simulation.stats


def _requests(streams: Sequence[Stream], request_bytes: int, most: int) -> Iterator[str]:
    """Yield the lines of a trace: of each stream in turn a run, until all have ended or there are enough."""
    runs = [_addresses(stream, request_bytes) for stream in streams]
    kinds = ["ST" if stream.is_output else "LD" for stream in streams]
    count = 0
    while runs and count < most:
        for place in reversed(range(len(runs))):
            address = next(runs[place], None)
            if address is None:
                del runs[place], kinds[place]
            elif count < most:
                count += 1
                yield f"{kinds[place]} {address}"


def _addresses(stream: Stream, request_bytes: int) -> Iterator[int]:
    """Yield the addresses of a stream's requests, each once."""
    n_bytes = round(stream.total_bytes)
    run = stream.chunk_bytes or n_bytes
    stride = max(run, stream.stride_bytes)
    for number in range(-(-n_bytes // run) if run else 0):
        start = (stream.address or 0) + number * stride
        yield from range(start - start % request_bytes, start + min(run, n_bytes - number * run), request_bytes)
