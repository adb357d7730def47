"""SimPy's package stays unread until it is asked, and is then what it is without tpusim."""

from __future__ import annotations

import subprocess
import sys

ASK = """
import tpusim.machine.clock as clock
import simpy
assert "__version__" not in vars(simpy)
from simpy import Container, Environment
assert simpy.__version__ and simpy.Store and simpy.events.Event is simpy.Event is clock.Event
assert Environment is clock.Environment and not hasattr(simpy, "nothing")
"""


def test_the_package_is_read_when_it_is_asked() -> None:
    """All of its names are there then, and its classes are those that the machine has."""
    run = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
