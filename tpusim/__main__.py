"""``python -m tpusim`` is the command ``tpusim``."""

from __future__ import annotations

import sys

from tpusim.cli.entry import run_process

if __name__ == "__main__":
    sys.exit(run_process())
