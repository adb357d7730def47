"""Reading HLO text: our parser beside XLA's on the same file, in the same run.

    python benchmarks/parse.py [FILE.hlo.txt.gz] [--rounds N]

Without a file it takes the largest in ``traces/``. Rounds alternate between the two, so that a busy machine slows both;
the best round of each counts. XLA's parser comes with ``jaxlib``; without it only ours is timed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.text import parse_module, read_source

if TYPE_CHECKING:
    from collections.abc import Callable

_TRACES = Path(__file__).parent.parent / "traces"


def main(arguments: list[str] | None = None) -> None:
    """Time both parsers and print megabytes per second and their ratio."""
    options = _options(arguments)
    source = read_source(options.file or _largest_trace())
    parsers: dict[str, Callable[[], object]] = {"tpusim": lambda: parse_module(source)}
    xla = _xla_parser()
    if xla is not None:
        parsers["XLA"] = lambda: xla(source.text)
    best = _best_seconds(parsers, options.rounds)
    megabytes = len(source.text.encode()) / 1e6
    sys.stdout.write(f"{source.name}: {megabytes:.2f} MB, {parse_module(source).instruction_count} instructions\n")
    for name, seconds in best.items():
        sys.stdout.write(f"{name:8} {megabytes / seconds:7.2f} MB/s   {seconds * 1e3:8.2f} ms\n")
    if xla is not None:
        sys.stdout.write(f"ratio    {best['XLA'] / best['tpusim']:7.2f}\n")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Time our HLO parser beside XLA's.")
    parser.add_argument("file", nargs="?", help="HLO text, gzipped or not; default: the largest in traces/")
    parser.add_argument("--rounds", type=int, default=10, help="rounds per parser (default: 10)")
    return parser.parse_args(arguments)


def _largest_trace() -> str:
    """Return the path of the largest program in ``traces/``."""
    files = sorted(_TRACES.rglob("*.hlo.txt.gz"), key=lambda path: path.stat().st_size)
    if not files:
        sys.exit(f"no *.hlo.txt.gz in {_TRACES}; name a file")
    return str(files[-1])


def _xla_parser() -> Callable[[str], object] | None:
    """Return XLA's parser, or None if jaxlib is not installed."""
    try:
        from jaxlib import _hlo
    except ImportError:
        return None
    parse: Callable[[str], object] = _hlo.hlo_module_from_text
    return parse


def _best_seconds(parsers: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Run the parsers in turn; return the least time that each took, in seconds."""
    best = dict.fromkeys(parsers, float("inf"))
    for _ in range(rounds):
        for name, parse in parsers.items():
            start = time.perf_counter()
            module = parse()
            best[name] = min(best[name], time.perf_counter() - start)
            del module
    return best


if __name__ == "__main__":
    main()
