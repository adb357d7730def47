"""SCALE-Sim's reports: a line for each layer, in the columns of v3 (``simulator.py``, ``single_layer_sim.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, log2
from pathlib import Path
from typing import Final

from tpusim.errors import ConfigError
from tpusim.files import write_whole
from tpusim.hardware.array import Array
from tpusim.program.layers import Layer
from tpusim.timeline.folds import Accesses, ArrayRun, MemoryRun

Row = tuple[Layer, ArrayRun, MemoryRun]

_SRAMS: Final = ("IFMAP", "Filter", "OFMAP")
_COMPUTE: Final = (
    "Total Cycles (incl. prefetch), Total Cycles, Stall Cycles, Overall Util %, Mapping Efficiency %, Compute Util %"
)
_SPARSE: Final = (
    "Sparsity Representation, Original Filter Storage, New Storage (Filter+Metadata), Filter Metadata Storage, "
    "Avg FILTER Metadata SRAM BW"
)
# Words of 32 bits.
_METADATA_WORD_BITS: Final = 32


def scale_sim_reports(rows: Sequence[Row], array: Array, sparse: str | None = None) -> dict[str, str]:
    """Return the texts of the reports by file name; ``sparse``: how sparse filters are stored, if sparsity is on."""
    metadata = "Avg FILTER Metadata SRAM BW, " if sparse else ""
    bandwidth = f"Avg IFMAP SRAM BW, Avg FILTER SRAM BW, {metadata}Avg OFMAP SRAM BW"
    reports = {
        "COMPUTE_REPORT.csv": _report(_COMPUTE, (_compute(row, array) for row in rows)),
        "BANDWIDTH_REPORT.csv": _report(
            f"{bandwidth}, Avg IFMAP DRAM BW, Avg FILTER DRAM BW, Avg OFMAP DRAM BW",
            (_bandwidth(row, array, sparse) for row in rows),
        ),
        "DETAILED_ACCESS_REPORT.csv": _report(
            ", ".join(_detail_columns(side, sram) for side in ("SRAM", "DRAM") for sram in _SRAMS),
            (_details(row, array, sparse) for row in rows),
        ),
    }
    if sparse:
        reports["SPARSE_REPORT.csv"] = _report(_SPARSE, ([sparse, *_storage(row, sparse)] for row in rows))
    return reports


def write_reports(reports: dict[str, str], folder: Path) -> None:
    """Write reports into a folder, which is made if need be, each whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in reports.items():
            write_whole(folder / name, text)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written to: {error.strerror or error}") from error


def _report(columns: str, lines: Iterable[Sequence[float | str]]) -> str:
    """Return a file: a header and a line for each layer, each with a comma at its end."""
    numbered = (f"{i}, {', '.join(map(str, line))},\n" for i, line in enumerate(lines))
    return f"LayerID, {columns},\n{''.join(numbered)}"


def _detail_columns(side: str, sram: str) -> str:
    what = "Writes" if sram == "OFMAP" else "Reads"
    return f"{side} {sram} Start Cycle, {side} {sram} Stop Cycle, {side} {sram} {what}"


def _compute(row: Row, array: Array) -> list[float]:
    """Return the fields of the compute report; what is overall counts zeros as work, as they are there."""
    layer, run, memory = row
    overall = 100 * layer.m * layer.n * layer.k / (memory.cycles * array.mac_slots)
    # Rows that a column has room for count as work there, kept or not.
    computing = 100 * layer.m * layer.n * layer.inner / run.computing_slots
    shares = [overall, 100 * run.mapping_efficiency, computing]
    return [memory.cycles_with_prefetch, memory.cycles, memory.stall_cycles, *shares]


def _srams(memory: MemoryRun) -> tuple[Accesses, Accesses, Accesses]:
    return memory.ifmap, memory.filter, memory.ofmap


def _sram_words(row: Row, array: Array, sparse: str | None) -> list[float]:
    """Return the words of the SRAMs: every group of M rows that N are kept of reads the left operand for each."""
    layer, _, memory = row
    words: list[float] = [accesses.sram_words for accesses in _srams(memory)]
    if sparse and array.dataflow == "ws" and not layer.rowwise:
        words[0] *= layer.kept[1] / layer.kept[0]
    return words


def _bandwidth(row: Row, array: Array, sparse: str | None) -> list[float]:
    """Return words per cycle, of the SRAMs over all cycles and of DRAM from first to last."""
    _, _, memory = row
    sram = [words / memory.cycles for words in _sram_words(row, array, sparse)]
    if sparse:
        sram.insert(2, _storage(row, sparse)[-1])
    return sram + [accesses.dram_words_per_cycle for accesses in _srams(memory)]


def _details(row: Row, array: Array, sparse: str | None) -> list[float]:
    """Return first and last cycle and words of every SRAM, on both its sides; cycles are floats there."""
    srams = _srams(row[2])
    words = _sram_words(row, array, sparse)
    near = [x for a, n in zip(srams, words, strict=True) for x in (float(a.sram_start), float(a.sram_stop), n)]
    return near + [x for a in srams for x in (float(a.dram_start), float(a.dram_stop), a.dram_words)]


def _storage(row: Row, sparse: str) -> list[float]:
    """Return the words of the filter as it is, as it is stored, of what says where its values are, and per cycle."""
    layer, _, memory = row
    values = layer.inner * layer.n
    if sparse == "ellpack_block":
        metadata: float = values * ceil(log2(layer.kept[1])) / _METADATA_WORD_BITS
    else:
        values = layer.kept_words
        metadata = values + (layer.k if sparse == "csr" else layer.n) + 1
    return [layer.k * layer.n, values + metadata, metadata, metadata / memory.cycles]
