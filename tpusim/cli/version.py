"""What ``tpusim --version`` prints: the version, and the commit where one is known."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tpusim import __version__


class ShowVersion(argparse.Action):
    """The option, which looks for the commit only when it is asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print and exit."""
        commit = _of_checkout() or _of_installation()
        sys.stdout.write(f"tpusim {__version__}{f' (commit {commit})' if commit else ''}\n")
        sys.stdout.flush()
        parser.exit()


def _of_checkout() -> str:
    """Return the commit of the folder that the package lies in, with a mark if files have changed since."""
    root = Path(__file__).parents[2]
    # What only this option needs loads with it.
    import subprocess

    # In an installed package this is the folder of all packages, which may lie in somebody else's checkout.
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _of_installation() -> str:
    """Return the commit that pip installed, if it was told one (PEP 610)."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        known = json.loads(distribution("tpusim").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return ""
    return str(known.get("vcs_info", {}).get("commit_id", ""))[:12]
