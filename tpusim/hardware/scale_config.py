"""SCALE-Sim's configuration files (``.cfg``): the array, its SRAMs and DRAM's bandwidth.

Format: SCALE-Sim v3, ``scale_config.py``. Sections in brackets, ``key: value`` or ``key = value``, in any case. Of v2's
files only the bandwidths differ: one for all, where v3 states those of reads in ``[layout]``. What is left out is off.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from tpusim.errors import ConfigError, UnsupportedError, did_you_mean
from tpusim.files import read_text
from tpusim.hardware.array import DATAFLOWS, Array
from tpusim.hardware.buffers import Buffers, Rates
from tpusim.source import SourceText, Span

_NEEDED: Final = "arrayheight arraywidth ifmapsramszkb filtersramszkb ofmapsramszkb dataflow".split()
# Of traces, banks and layouts, which are not there; without effect where those are off.
_IGNORED: Final = (
    "ifmapoffset filteroffset ofmapoffset memorybanks onchipmemorybanks onchipmemorybankports readrequestbuffer "
    "writerequestbuffer ifmapsrambanknum ifmapsrambankport filtersrambanknum filtersrambankport topologycsvloc"
).split()
_OFF: Final = {
    "useramulatortrace": "DRAM times from Ramulator",
    "ifmapcustomlayout": "layouts of SRAM banks",
    "filtercustomlayout": "layouts of SRAM banks",
}
_OTHERS: Final = (
    "run_name bandwidth interfacebandwidth ifmapsrambankbandwidth filtersrambankbandwidth sparsitysupport sparserep "
    "optimizedmapping blocksize randomnumbergeneratorseed"
).split()
_REPRESENTATIONS: Final = ("ellpack_block", "csr", "csc")
_KILO: Final = 1024
_SEED: Final = 40
"""SCALE-Sim's own."""


class Blocks(NamedTuple):
    """Rows among which columns choose what they keep, and the seed of the numbers that say how many."""

    rows: int
    seed: int


class ScaleConfig(NamedTuple):
    """What a file states."""

    run_name: str
    array: Array
    buffers: Buffers
    sparse: str | None
    """How sparse filters are stored, if sparsity is on."""
    rowwise: Blocks | None
    """What columns keep, if sparsity is on and differs from column to column (``OptimizedMapping``)."""


class _Entry(NamedTuple):
    """A value and its place."""

    text: str
    span: Span


def load_scale_config(path: str | Path) -> ScaleConfig:
    """Return what a ``.cfg`` file states; raises ConfigError and UnsupportedError with line and column."""
    return parse_scale_config(SourceText(str(path), read_text(path, "cannot be read as a configuration")))


def parse_scale_config(source: SourceText) -> ScaleConfig:
    """Return what the text of a ``.cfg`` file states; see ``load_scale_config``."""
    entries = _entries(source)
    for key in _NEEDED:
        if key not in entries:
            raise ConfigError(f"{source.name}: expected {key!r}, found no such key")
    for key, what in _OFF.items():
        if key in entries and _flag(entries[key]):
            raise UnsupportedError(f"{what} ({key}) is not modelled: set it to False", entries[key].span)
    dataflow = entries["dataflow"]
    if dataflow.text not in DATAFLOWS:
        raise ConfigError(f"Dataflow: expected one of {', '.join(DATAFLOWS)}, found {dataflow.text!r}", dataflow.span)
    rows, columns = _number(entries["arrayheight"]), _number(entries["arraywidth"])
    words = {name: _KILO * _number(entries[f"{name}sramszkb"]) for name in ("ifmap", "filter", "ofmap")}
    return ScaleConfig(
        _run_name(entries),
        Array(rows=rows, columns=columns, dataflow=dataflow.text, mode="scale-sim"),
        Buffers(**{f"{name}_words": size for name, size in words.items()}, rates=_rates(entries, source)),
        _sparse(entries),
        _rowwise(entries, source),
    )


def _entries(source: SourceText) -> dict[str, _Entry]:
    """Return the values by key, in lower case."""
    entries, known = {}, {*_NEEDED, *_IGNORED, *_OFF, *_OTHERS}
    for line in re.finditer(r"[^\n]+", source.text):
        whole = _stripped(source, line.start(), line.end())
        if not whole.text or whole.text[0] in "#;[":
            continue
        sign = re.search("[:=]", whole.text)
        if not sign or not sign.start():
            raise ConfigError("expected [section] or key: value", whole.span)
        name = _stripped(source, whole.span.start, whole.span.start + sign.start())
        key = name.text.lower()
        if key not in known:
            raise ConfigError(f"unknown key {name.text!r}{did_you_mean(key, known)}", name.span)
        if key in entries:
            raise ConfigError(f"expected {name.text!r} once, found it twice", name.span)
        entries[key] = _stripped(source, whole.span.start + sign.end(), line.end())
    return entries


def _stripped(source: SourceText, start: int, end: int) -> _Entry:
    """Return what stands between two places, without the blanks around it."""
    text = source.text[start:end]
    begin = start + len(text) - len(text.lstrip())
    return _Entry(text.strip(), source.span(begin, begin + max(1, len(text.strip()))))


def _run_name(entries: dict[str, _Entry]) -> str:
    """Return what a run's folder is called, which is no way to another one."""
    if "run_name" not in entries:
        return ""
    name = entries["run_name"]
    if name.text in ("..", ".") or re.search(r"[/\\\0]", name.text):
        raise ConfigError(f"run_name: expected the name of a folder, found {name.text!r}", name.span)
    return name.text


def _rates(entries: dict[str, _Entry], source: SourceText) -> Rates | None:
    """Return DRAM's bandwidths, or None where they are to be found out."""
    mode = entries.get("interfacebandwidth")
    if mode is None or mode.text == "CALC":
        return None
    if mode.text != "USER":
        raise ConfigError(f"InterfaceBandwidth: expected USER or CALC, found {mode.text!r}", mode.span)
    if "bandwidth" not in entries:
        raise ConfigError(f"{source.name}: expected 'Bandwidth', as InterfaceBandwidth is USER, found no such key")
    shared = entries["bandwidth"]
    first, *_ = (_number(shared._replace(text=part.strip())) for part in shared.text.split(","))
    reads = (entries.get(f"{name}srambankbandwidth") for name in ("ifmap", "filter"))
    ifmap, filters = (_number(entry) if entry else first for entry in reads)
    return Rates(ifmap=ifmap, filter=filters, ofmap=first)


def _sparse(entries: dict[str, _Entry]) -> str | None:
    """Return how sparse filters are stored, or None where sparsity is off."""
    if "sparsitysupport" not in entries or not _flag(entries["sparsitysupport"]):
        return None
    form = entries.get("sparserep")
    if form and form.text not in _REPRESENTATIONS:
        raise ConfigError(f"SparseRep: expected one of {', '.join(_REPRESENTATIONS)}, found {form.text!r}", form.span)
    return form.text if form else _REPRESENTATIONS[0]


def _rowwise(entries: dict[str, _Entry], source: SourceText) -> Blocks | None:
    """Return what columns keep, or None where all keep the same."""
    entry = entries.get("optimizedmapping")
    if not _sparse(entries) or entry is None or not _flag(entry):
        return None
    if entries["dataflow"].text != "ws":
        raise UnsupportedError("OptimizedMapping: expected Dataflow: ws, as SCALE-Sim has no other one", entry.span)
    if "blocksize" not in entries:
        raise ConfigError(f"{source.name}: expected 'BlockSize', as OptimizedMapping is true, found no such key")
    size, seed = entries["blocksize"], entries.get("randomnumbergeneratorseed")
    group = _number(size)
    if group % 2 or _number(entries["arrayheight"]) % group:
        expected = "an even number of rows of which ArrayHeight is a multiple"
        raise UnsupportedError(f"BlockSize: expected {expected}, found {group}", size.span)
    return Blocks(group, _number(seed) if seed else _SEED)


def _flag(entry: _Entry) -> bool:
    if entry.text.lower() not in ("true", "false"):
        raise ConfigError(f"expected True or False, found {entry.text!r}", entry.span)
    return entry.text.lower() == "true"


def _number(entry: _Entry) -> int:
    if not (entry.text.isascii() and entry.text.isdecimal() and len(entry.text) < 10 and int(entry.text)):
        raise ConfigError(f"expected a whole number from 1, found {entry.text!r}", entry.span)
    return int(entry.text)
