"""A chip as data: what the configuration files say, checked and frozen. No number about a chip stands in code.

A field with a default is of a part that a chip may lack, and its default says that there is none; files leave it out.

All figures are per TensorCore unless their comment says "per chip". What is not published is a fitted parameter, and
the configuration file says how it was fitted.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from tpusim.hardware.units import HBM

Setting = int | float | bool | str
"""A figure that a model of a unit is made with."""


class Mxu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The matrix units of one core: weight-stationary systolic arrays."""

    count: int
    rows: int
    columns: int
    # 1 on 128x128 arrays, 2 on 256x256 ones: a packed (16,256) instruction takes 8 cycles (openxla/xprof).
    lhs_rows_per_cycle: float
    """Rows of the streamed operand that enter one array per cycle, for 16-bit operands."""
    # A table, since no rule fits: v5e doubles the rate for 8-bit integers, v7x does not take them at all.
    rate_by_type: dict[str, float]
    """Speed against bf16 of one pass, by operand type (``f32`` is rounded to bf16); absent = converted first."""
    weight_load_rows_per_cycle: float
    """Rows of a weight tile that shift into the array per cycle."""
    efficiency: float
    """Share of the array's peak rate that long products sustain (fitted)."""
    tile_switch_cycles: float
    """Cycles that an array idles between the rows of one weight tile and those of the next (fitted)."""
    result_registers_per_cycle: float
    """Registers of results that one core takes from its arrays and puts away per cycle (fitted)."""
    result_latency_cycles: float
    """From the last row in to the last result out; each tile of a kernel's loop waits for it."""
    parked_register_cycles: float
    """What a register of results costs that is added to the part of its sum that an earlier tile left in VMEM (fitted).
    The product waits for it."""
    accumulates_in_array: bool
    """Whether partial sums over K are added by the result buffer (v7x) rather than by the vector unit."""
    model: str = "weight-stationary"
    """What prices products: a name of ``cost/models/arrays.py``, or ``package.module:Class``."""
    settings: dict[str, Setting] = {}
    """What the model is made with."""


class Vpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The vector unit of one core, in operations on whole 4 KiB registers."""

    # A field and not 8: the eighth generation is listed with 16 (jax-ml/jax, tpu_info.py).
    sublanes: int
    lanes: int
    registers: int
    alu_slots: int
    load_slots: int
    store_slots: int
    eup_slots: int
    xlu_units: int
    # Until the next one can begin; how long a result takes is not in it.
    xlu_cycles_per_op: float
    native_bf16: bool
    """Whether 16-bit elements are added and multiplied without a conversion to f32."""
    model: str = "table"
    """What prices operations and whole kernels: ``table`` (``vector_ops``), or ``package.module:Class``."""
    settings: dict[str, Setting] = {}

    @property
    def register_shape(self) -> tuple[int, int]:
        """Rows and columns of 32-bit elements in one register, which is also what compilers count blocks in."""
        return self.sublanes, self.lanes

    @property
    def register_elements(self) -> int:
        """32-bit elements in one register."""
        return self.sublanes * self.lanes

    @property
    def register_bytes(self) -> int:
        """What one load or store moves: 32 bits a lane, whatever the type."""
        return 4 * self.register_elements


class Vmem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The vector memory of one core."""

    capacity_bytes: int
    scoped_bytes: int
    """What one kernel may take of it for all copies of its blocks; whole arrays have the rest."""

    @property
    def kernel_bytes(self) -> int:
        """The same, where the memory is no smaller."""
        return min(self.scoped_bytes, self.capacity_bytes)


class Cmem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The common memory of the chip (v4 family); all 0 where there is none."""

    capacity_bytes: int = 0
    # Apart, because on TPUv4i reading is twice as fast as writing (Jouppi et al., ISCA 2021).
    read_bytes_per_second: float = 0
    write_bytes_per_second: float = 0


class Hbm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The high-bandwidth memory that one simulated device sees."""

    capacity_bytes: int
    reserved_bytes: int
    """What the system keeps for itself of that."""
    bandwidth_bytes_per_second: float
    """Advertised bandwidth of the device: the roofline's."""
    efficiency: float
    """Share of the advertised bandwidth that long reads reach."""
    write_efficiency: float
    """The same of long writes."""
    turn_cost: float
    """What a byte that is written between reads, or read between writes, costs beside itself, in bytes (fitted)."""
    model: str = "bandwidth"
    """What prices accesses: a name of ``cost/models/memories.py``, or ``package.module:Class``."""
    settings: dict[str, Setting] = {}

    @property
    def long_read_bytes_per_second(self) -> float:
        """What long reads reach, to which the loads of all accesses are held."""
        return self.bandwidth_bytes_per_second * self.efficiency

    @property
    def available_bytes(self) -> int:
        """What a program may have."""
        return max(0, self.capacity_bytes - self.reserved_bytes)


class Dma(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Copies between memories."""

    fixed_latency_seconds: float
    """From the start of a transfer to its first byte (fitted)."""
    min_chunk_bytes: int
    """A contiguous run shorter than this moves no faster than one of this length."""
    issue_cycles: float
    """What the scalar core takes to start a transfer of a tile and to wait for it, which nothing overlaps (fitted)."""
    buffers: int
    """Blocks of one operand that can be on their way or computed with at once."""
    chunk_cost_bytes: float
    """What each contiguous run costs beyond its bytes, in bytes that could have moved in that time (fitted)."""
    vmem_bytes_per_second: float
    """Bandwidth of copies that stay inside the core."""
    smallest_block_bytes: int
    """Tiles of our own choosing move at least this at a time."""
    model: str = "rotating"
    """How the buffers of blocks go round: a name of ``cost/models/buffers.py``, or ``package.module:Class``."""
    settings: dict[str, Setting] = {}


class Fixed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fixed costs (fitted)."""

    launch_seconds: float
    """Start and end of a program on the device, beside its kernels (fitted)."""
    kernel_seconds: float
    """Start and end of one kernel."""
    tile_cycles: float
    """One turn of a kernel's tile loop, its transfers apart."""
    scalar_op_cycles: float
    """One instruction on the scalar core (scalars in SMEM)."""
    scalar_slots: int
    """Instructions that the scalar core begins in a cycle, where they wait for no other: addresses, beside a kernel."""
    loop_iteration_seconds: float
    """One trip round a ``while``: evaluating its condition and branching."""


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The link to the host, each way, per chip; the devices of a chip share it."""

    bandwidth_bytes_per_second: float
    all_chips_bytes_per_second: float
    """What all chips of one host can move together, each way."""
    latency_seconds: float
    dispatch_seconds: float
    """What a blocked call takes, on the host's clock, beyond the call of an empty program and the program's own time
    (fitted; only comparisons with such clocks need it)."""


class Ici(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The links to other chips, per chip."""

    links: int
    dimensions: int
    link_bytes_per_second: float
    """One way, per link, raw."""
    efficiency: float
    hop_latency_seconds: float
    wrap: str
    """When an axis of a slice is a ring: ``length16`` (v5e, v6e), ``cube4`` (v4, v5p, v7x), ``always`` (v2, v3)."""
    launch_seconds: float
    """From the core's call of a collective to the first byte on a link, and back from the last (fitted)."""
    step_seconds: float
    """What each further message of a ring takes beside its hops and bytes: until it is seen that one has come in and
    the next is sent (fitted)."""
    local_bytes_per_second: float
    """Between devices of one chip, each way."""
    gathers_beside_products: bool = False
    """Whether the TPU compiler lets kernels with products take all-gathers along that they do not need."""
    model: str = "torus"
    """What joins the chips of a slice: a name of ``cost/models/fabrics.py``, or ``package.module:Class``."""
    settings: dict[str, Setting] = {}
    algorithm: str = "native"
    """How collectives are carried out: a name of ``cost/models/algorithms.py``, or ``package.module:Class``."""
    links_down: tuple[str, ...] = ()
    """Links that have failed, both ways, as reports name them: ``3:+0`` up the first axis from chip 3, ``3:>9``."""
    link_factors: dict[str, float] = {}
    """Rates of single links, one way, in multiples of ``link_bytes_per_second``, by the same names."""

    @property
    def links_bytes_per_second(self) -> float:
        """One way, all links together; a program that asks a chip without links for them is given one."""
        return max(1, self.links) * self.link_bytes_per_second


class Pod(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How chips are put together to slices, and slices to larger machines."""

    chips: int
    """The most that one slice can have."""
    host: str
    """Chips along each axis that hang on one host, such as ``2x2x1``."""
    counted_per_chip: int
    """What the number in a name such as ``v5p-128`` counts of each chip: 2 where it counts cores."""
    twists: bool
    """Whether slices of n x n x 2n and n x 2n x 2n chips are twisted tori."""
    dcn_bytes_per_second: float
    """Per chip, each way, between slices."""
    dcn_latency_seconds: float


OpCost = dict[str, float]
"""Operations per vector register of the result, by unit; those of the scalar core per row or element."""


class VectorOps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Costs of element-wise opcodes, of the moves that change where elements lie, and of changes of width.

    ``unpack`` and ``pack`` are by element type and per 32-bit register of elements that come from, or go to, memory.
    ``latency`` is what one operation of a unit takes from its operands to its result.
    """

    ops: dict[str, OpCost] = {}
    moves: dict[str, OpCost] = {}
    unpack: dict[str, OpCost] = {}
    pack: dict[str, OpCost] = {}
    # Cycles, by unit.
    latency: dict[str, float] = {}
    # One word for the whole table, unlike the chips: no entry of it is published.
    confidence: str = ""
    source: str = ""


class Power(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the chip is made and what it draws, per chip."""

    node_nm: float
    """The process, by its name."""
    supply_ratio: float
    """The supply voltage over that which is nominal for the node."""
    idle_watts: float
    """What the chip, its memory and its links draw while no program runs; a program's energy comes on top."""
    model: str = "events"
    """What energy events take: ``events`` (``configs/energy``), or ``package.module:Class``."""
    settings: dict[str, Setting] = {}


class Chip(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One device as a program sees it."""

    name: str
    aliases: tuple[str, ...] = ()
    description: str
    # Empty where a chip is known at one only; each further one has a file of its own.
    operating_point: str = ""
    """The power state that the figures are of, such as ``boosted, 2.2 GHz``."""
    year: int
    cores_per_device: int
    """2 where two cores run one program together (megacore)."""
    # 2 where each core is a device of its own to JAX: v2, v3 and v7x.
    devices_per_chip: int
    clock_hz: float
    tuple_table_granule_bytes: int
    """A tuple result's table of addresses (4 bytes each) is rounded up to this."""
    least_tile_rows: int
    """The fewest rows of 32 bits that an array's tile has."""
    mxu: Mxu
    vpu: Vpu
    vmem: Vmem
    hbm: Hbm
    dma: Dma
    fixed: Fixed
    host: Host
    ici: Ici
    pod: Pod
    power: Power
    # What not every chip has, a file may leave out: the default is that there is none.
    cmem: Cmem = Cmem()
    units: dict[str, dict[str, float]] = {}
    """Rates of further units, by key of the table of units: ``slots``, ``cycles_per_op``, ``fill``."""
    devices: dict[str, dict[str, float]] = {}
    """By number of a device what is another figure there: ``clock`` and ``hbm``, factors on its rates."""
    energy: dict[str, float] = {}
    """Joules of one event on this chip, instead of what the common table says of it (``hbm``: of a byte)."""
    area: dict[str, float] = {}
    """Square millimetres of a unit or memory on the die, instead of what the common table makes of its size."""
    # One table for all chips, as the costs of no generation are published.
    vector_ops: VectorOps = VectorOps()

    @property
    def peak_flops_per_second(self) -> float:
        """Floating-point operations per second for bf16, two per multiply-add, on all matrix units of the device."""
        # 2 arrays x 256 x 256 x 2 rows at 1.75 GHz, times the two of a multiply-add, are the 918 TFLOP/s of v6e.
        per_cycle = self.mxu.count * self.mxu.rows * self.mxu.columns * self.mxu.lhs_rows_per_cycle
        return 2 * per_cycle * self.clock_hz * self.cores_per_device


def device_chip(chip: Chip, number: int) -> Chip:
    """Return a chip as a device has it: with a slower clock, or slower HBM, where it says so of this one."""
    own = chip.devices.get(str(number), {})
    if not own:
        return chip
    rate = chip.hbm.bandwidth_bytes_per_second * own.get(HBM, 1.0)
    hbm = _rebuilt(chip.hbm, bandwidth_bytes_per_second=rate)
    return cast("Chip", _rebuilt(chip, clock_hz=chip.clock_hz * own.get("clock", 1.0), hbm=hbm))


def _rebuilt(struct: msgspec.Struct, **changes: Any) -> msgspec.Struct:
    """Return a struct with some fields replaced, read one by one, as a chip that notes reads needs it."""
    kind = struct.__class__
    values = {n: changes[n] if n in changes else getattr(struct, n) for n in kind.__struct_fields__}
    return kind(**{name: _rebuilt(v) if isinstance(v, msgspec.Struct) else v for name, v in values.items()})
