"""The most memory that a command takes: ``python -m tests.peak run FILE`` runs it and says so on standard error."""

from __future__ import annotations

import atexit
import re
import resource
import subprocess
import sys
from pathlib import Path

from tpusim.cli.entry import run_process


def peak_bytes_of(*arguments: str) -> int:
    """Return the most memory that the command line takes, in a process of its own."""
    command = [sys.executable, "-m", "tests.peak", *arguments]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    return int(done.stderr.split()[-1])


def _own_peak_bytes() -> int:
    """Return the most memory that this process has had."""
    status = Path("/proc/self/status")
    # Of a process that another one started, getrusage counts that of the other as well: here pytest's.
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return (int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) << 10


if __name__ == "__main__":
    atexit.register(lambda: sys.stderr.write(f"{_own_peak_bytes()}\n"))
    sys.exit(run_process())
