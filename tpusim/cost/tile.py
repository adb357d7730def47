"""The time of one kernel on its own: a pipeline of tiles, each fetched, computed and written back.

While tile i computes, tile i+1 is on its way in and tile i-1 on its way out, so that the kernel takes: the first blocks
in, then per tile the longer of its computation and its traffic, then the last block out. All tiles are alike, so this
is closed form; ``machine.steps.kernel`` plays it against whatever else uses the memories at the time.
"""

from __future__ import annotations

import msgspec

from tpusim.cost.dma import Traffic, link_of, memory_rates, traffic_of
from tpusim.cost.mxu import matmul_cycles
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HBM, LOAD, MATRIX, SCALAR, STORE, UNITS, VMEM, chip_value, mac_key
from tpusim.program.steps import Kernel
from tpusim.program.work import scaled
from tpusim.units import cycles_to_ps, seconds_to_ps


class KernelTime(msgspec.Struct, frozen=True):
    """The parts of a kernel's time, and its ``activity``. ``unit_ps`` is how long each unit is busy over the whole."""

    fixed_ps: int
    compute_ps: int
    unit_ps: dict[str, int]
    traffic: tuple[Traffic, ...]
    slowest_unit: str
    activity: dict[str, float]


def kernel_time(kernel: Kernel, chip: Chip) -> KernelTime:
    """Return what ``kernel`` costs on ``chip``, before anything else gets in its way."""
    if kernel.scalar:
        return _scalar_time(kernel, chip)
    cycles = unit_cycles(kernel, chip)
    needed = _needed_cycles(cycles, chip)
    # One instruction word feeds all units at once (VLIW): they overlap, and the busiest decides.
    slowest = max(needed, key=lambda unit: needed[unit])
    tiles_per_core = -(-kernel.tiles // kernel.cores)
    # A core that holds fewer tiles than its fellow still waits for it, so the longer half decides.
    tile_cycles = needed[slowest] + between_tiles_cycles(kernel, chip)
    # Once per kernel: behind every tile but the last the next one is streaming in already.
    drain = chip.mxu.result_latency_cycles if cycles[MATRIX] else 0
    share = tiles_per_core * kernel.cores / kernel.tiles
    unit_ps = {unit: cycles_to_ps(kernel.tiles * c / kernel.cores, chip.clock_hz) for unit, c in cycles.items() if c}
    return KernelTime(
        fixed_ps=seconds_to_ps(chip.fixed.kernel_seconds),
        compute_ps=cycles_to_ps(tile_cycles * kernel.tiles * share / kernel.cores + drain, chip.clock_hz),
        unit_ps=unit_ps,
        traffic=traffic_of(kernel, chip),
        slowest_unit=slowest,
        activity=kernel_activity(kernel, chip),
    )


def _needed_cycles(cycles: dict[str, float], chip: Chip) -> dict[str, float]:
    """Return what code needs of each unit: compiled code does not fill every slot of the vector unit in every cycle."""
    return {key: c / chip_value(chip, UNITS[key].fill) if c and UNITS[key].fill else c for key, c in cycles.items()}


def tile_costs(kernel: Kernel, chip: Chip) -> dict[str, float]:
    """Return what one tile costs each unit of a core, and each memory that cores share, in cycles of the core."""
    costs, rates = _needed_cycles(unit_cycles(kernel, chip), chip), memory_rates(chip)
    for traffic in traffic_of(kernel, chip):
        n_bytes = traffic.first_bytes + traffic.steady_bytes + traffic.last_bytes
        # A tile of each core goes by at once.
        costs[traffic.space] = n_bytes / rates[traffic.space] * chip.clock_hz / kernel.tiles * kernel.cores
    return costs


def between_tiles_cycles(kernel: Kernel, chip: Chip) -> float:
    """Return what one iteration of the tile loop costs beside its work, in cycles."""
    if kernel.tiles == 1:
        return 0.0
    return chip.fixed.tile_cycles + (chip.mxu.tile_drain_cycles if kernel.work.matmuls else 0.0)


def unit_cycles(kernel: Kernel, chip: Chip) -> dict[str, float]:
    """Return the cycles that one tile keeps each functional unit of one core busy, at the unit's peak rate."""
    cycles = {MATRIX: sum(matmul_cycles(matmul, chip.mxu) for matmul in kernel.work.matmuls)}
    for unit in UNITS.values():
        if unit.slots:
            # A chip need not have a unit that nothing is asked of.
            count = kernel.work.ops.get(unit.key, 0.0)
            per_op = chip_value(chip, unit.op_cycles) if count and unit.op_cycles else 1.0
            cycles[unit.key] = count * per_op / chip_value(chip, unit.slots) if count else 0.0
    return cycles


def _scalar_time(kernel: Kernel, chip: Chip) -> KernelTime:
    # Without the cost of starting a kernel: the scalar core is the one that starts them.
    busy_ps = cycles_to_ps(chip.fixed.scalar_op_cycles * max(1.0, kernel.work.ops.get(SCALAR, 0.0)), chip.clock_hz)
    return KernelTime(0, busy_ps, {SCALAR: busy_ps}, (), SCALAR, kernel_activity(kernel, chip))


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
            done[link_of(stream)] = done.get(link_of(stream), 0.0) + stream.total_bytes
    for matmul in kernel.work.matmuls:
        macs = matmul.streamed_rows * matmul.passes * kernel.tiles * chip.mxu.rows * chip.mxu.columns
        done[mac_key(matmul.operand_type)] = done.get(mac_key(matmul.operand_type), 0.0) + macs
    return done
