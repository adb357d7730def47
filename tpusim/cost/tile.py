"""The time of one kernel on its own: a pipeline of tiles, each fetched, computed and written back.

While tile i computes, tile i+1 is on its way in and tile i-1 on its way out, so that the kernel takes: the first blocks
in, then the period of a tile as often as there are tiles, then the last block out. The period is the longest of a
tile's computation, of its bytes at the memory's rate, and of a block's whole round (asked for, moved, computed with)
shared by the buffers that go round at once; and beside these what no other tile hides: the scalar core's turn of the
loop, its issue of each transfer and wait for it, and the way of the last results out of the arrays. All tiles are
alike, so this is closed form; ``machine.steps.kernel`` plays it against whatever else uses the memories at the time.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tpusim.cost.classes import body_cycles, busiest, class_cycles, unit_cycles
from tpusim.cost.dma import Traffic, link_of, memory_rates, rows_opened, traffic_of
from tpusim.cost.models.buffers import buffers_of
from tpusim.cost.peaks import flops_by_type, seconds_at_peak
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, LOAD, MATRIX, SCALAR, SMEM, STORE, VMEM, mac_key
from tpusim.program.steps import Kernel
from tpusim.program.work import scaled
from tpusim.units import cycles_to_ps, seconds_to_ps


class KernelTime(msgspec.Struct, frozen=True):
    """The parts of a kernel's time, and its ``activity``. ``unit_ps`` is how long each unit is busy over the whole.

    ``between_ps`` is what nothing overlaps of all tiles together, ``compute_ps`` their computation, ``moving_ps`` the
    traffic beside it, on the memory that takes longest. ``rounds_ps`` is the least that they take because only so many
    blocks can be on their way at once, ``bursts_ps`` because these do not come evenly. ``held`` weighs what the longer
    of computation and traffic is of: one unit or memory, or what holds up the tiles of a body, ``CHAIN`` among it.
    """

    fixed_ps: int
    between_ps: int
    compute_ps: int
    moving_ps: int
    rounds_ps: int
    bursts_ps: int
    unit_ps: dict[str, int]
    traffic: tuple[Traffic, ...]
    held: dict[str, float]
    activity: dict[str, float]

    @property
    def slowest(self) -> str:
        """What most of the longer of computation and traffic is of."""
        return max(self.held, key=lambda name: self.held[name])

    @property
    def least_ps(self) -> int:
        """What the tiles take at least if memories answer as fast as they can."""
        return max(self.compute_ps, self.rounds_ps, self.bursts_ps)


def kernel_time(kernel: Kernel, chip: Chip) -> KernelTime:
    """Return what ``kernel`` costs on ``chip``, before anything else gets in its way."""
    if kernel.scalar:
        return _scalar_time(kernel, chip)
    cycles = unit_cycles(kernel.work, chip)
    longest = stage_cycles(kernel, chip) if kernel.stages else [max(cycles.items(), key=lambda item: item[1])]
    held = {max(longest, key=lambda stage: stage[1])[0]: 1.0}
    tile_cycles = max(sum(stage for _, stage in longest), registers_cycles(kernel, chip))
    # Nothing of the last turn is overlapped; behind a product it is what its results take to come out.
    tile_cycles += kernel.vector_loop.depth_cycles if not cycles[MATRIX] else 0.0
    if kernel.classes:
        held = body_cycles(kernel, chip) or held
        tile_cycles = sum(c.tiles * class_cycles(kernel, c, chip) for c in kernel.classes) / kernel.tiles
    # A core that holds fewer tiles than its fellow still waits for it, so the longer half decides.
    tiles = -(-kernel.tiles // kernel.cores)
    compute_ps = max(cycles_to_ps(tile_cycles * tiles, chip.clock_hz), floor_ps(kernel, chip))
    traffic, rates = traffic_of(kernel, chip), memory_rates(chip)
    moving = {t.space: seconds_to_ps(t.steady_bytes / rates[t.space]) for t in traffic}
    moving_ps = max(moving.values(), default=0)
    if moving_ps > compute_ps:
        held = {max(moving, key=lambda space: moving[space]): 1.0}
    pace = buffers_of(chip).pace(kernel, moving, compute_ps, chip)
    return KernelTime(
        fixed_ps=seconds_to_ps(chip.fixed.kernel_seconds),
        between_ps=cycles_to_ps(between_tiles_cycles(kernel, chip) * tiles, chip.clock_hz),
        compute_ps=compute_ps,
        moving_ps=moving_ps,
        rounds_ps=pace.rounds_ps,
        bursts_ps=pace.bursts_ps,
        unit_ps={unit: cycles_to_ps(kernel.tiles * c / kernel.cores, chip.clock_hz) for unit, c in cycles.items() if c},
        traffic=traffic,
        held=held,
        activity=kernel_activity(kernel, chip),
    )


def alone_ps(kernel: Kernel, chip: Chip) -> int:
    """Return how long a kernel takes by itself: what ``machine.steps.kernel`` plays if nothing else moves meanwhile."""
    time, rates = kernel_time(kernel, chip), memory_rates(chip)
    total_ps = time.fixed_ps + time.between_ps + max(time.least_ps, time.moving_ps)
    for edge in ("first_bytes", "last_bytes"):
        seconds = [n_bytes / rates[t.space] for t in time.traffic if (n_bytes := getattr(t, edge)) > 0]
        total_ps += seconds_to_ps(chip.dma.fixed_latency_seconds + max(seconds)) if seconds else 0
    return total_ps


def floor_ps(kernel: Kernel, chip: Chip) -> int:
    """Return the least time in which a chip could do what a kernel states of itself, at the peaks of its units."""
    floor, vpu = kernel.floor, chip.vpu
    elements = vpu.eup_slots * vpu.register_elements * chip.clock_hz * chip.cores_per_device
    seconds = (
        seconds_at_peak(flops_by_type(kernel, floor.flops), chip),
        floor.transcendentals / elements,
        floor.hbm_bytes / chip.hbm.bandwidth_bytes_per_second,
    )
    return seconds_to_ps(max(seconds))


def stage_cycles(kernel: Kernel, chip: Chip) -> list[tuple[str, float]]:
    """Return the unit that takes longest in each stage of a tile, and its cycles."""
    # One instruction word feeds all units at once (VLIW): in a stage they overlap, and the busiest decides.
    return [busiest(work, chip) for work in kernel.stages or (kernel.work,)]


def registers_cycles(kernel: Kernel, chip: Chip) -> float:
    """Return what the turns of a tile take at least, as they share the vector registers."""
    return kernel.vector_loop.turns * kernel.vector_loop.held_cycles / chip.vpu.registers


def tile_costs(kernel: Kernel, chip: Chip) -> dict[str, float]:
    """Return what one tile costs each unit of a core, and each memory that cores share, in cycles of the core."""
    costs, rates = unit_cycles(kernel.work, chip), memory_rates(chip)
    for traffic in traffic_of(kernel, chip):
        n_bytes = traffic.first_bytes + traffic.steady_bytes + traffic.last_bytes
        # A tile of each core goes by at once.
        costs[traffic.space] = n_bytes / rates[traffic.space] * chip.clock_hz / kernel.tiles * kernel.cores
    return costs


def between_tiles_cycles(kernel: Kernel, chip: Chip) -> float:
    """Return what a tile costs beside its work and its bytes, in cycles, on the mean of a core's tiles."""
    fetches = [stream.fetches for stream in kernel.streams if stream.space not in (VMEM, SMEM)]
    cycles = loop_cycles(kernel.tiles, fetches, kernel.cores, chip)
    if kernel.classes:
        # What leaves the arrays last does so while blocks for the next tile are on their way.
        return cycles / -(-kernel.tiles // kernel.cores)
    # The next tile's weights, or the next stage's, go in when the last results of this one have come out.
    drains = sum(bool(work.matmuls) for work in kernel.stages or (kernel.work,))
    return cycles / -(-kernel.tiles // kernel.cores) + drains * chip.mxu.result_latency_cycles


def loop_cycles(tiles: int, fetches: Iterable[int], cores: int, chip: Chip) -> float:
    """Return what a core takes to go round its loop: the turns, and asking for blocks of streams but for the first.

    ``tiles``, and the ``fetches`` of each stream, are those of all ``cores`` together.
    """
    later = sum(max(0.0, count / cores - 1) for count in fetches)
    return (-(-tiles // cores) - 1) * chip.fixed.tile_cycles + later * chip.dma.issue_cycles


def _scalar_time(kernel: Kernel, chip: Chip) -> KernelTime:
    # Without the cost of starting a kernel: the scalar core is the one that starts them.
    busy_ps = cycles_to_ps(chip.fixed.scalar_op_cycles * max(1.0, kernel.work.ops.get(SCALAR, 0.0)), chip.clock_hz)
    # A single element takes the way of a transfer and none of its bandwidth.
    latency_ps = seconds_to_ps(chip.dma.fixed_latency_seconds) if kernel.streams else 0
    return KernelTime(
        latency_ps, 0, busy_ps, 0, 0, 0, {SCALAR: busy_ps}, (), {SCALAR: 1.0}, kernel_activity(kernel, chip)
    )


def kernel_activity(kernel: Kernel, chip: Chip) -> dict[str, float]:
    """Return what one execution of a kernel does in all its tiles, on all its cores, by key of ``hardware.units``.

    Multiply-accumulates are by type of the operands (``matrix.bf16``), those that only pad a tile included. The vector
    units' operations are on whole registers; memories and links count bytes. VMEM sees what registers load and store,
    and what comes in from other memories and goes out to them.
    """
    done = scaled(kernel.work.ops, kernel.tiles)
    done[HBM] = kernel.hbm_bytes
    done[VMEM] = (done.get(LOAD, 0.0) + done.get(STORE, 0.0)) * chip.vpu.register_bytes
    for stream in kernel.streams:
        # What lies in VMEM already is only loaded and stored.
        if stream.space != VMEM:
            done[VMEM] += stream.total_bytes
        if stream.space not in (VMEM, HBM):
            link = link_of(stream, chip)
            done[link] = done.get(link, 0.0) + stream.total_bytes
    for matmul in kernel.work.matmuls:
        macs = matmul.streamed_rows * matmul.passes * kernel.tiles * chip.mxu.rows * chip.mxu.columns
        done[mac_key(matmul.operand_type)] = done.get(mac_key(matmul.operand_type), 0.0) + macs
    return done | rows_opened(kernel.streams, chip)
