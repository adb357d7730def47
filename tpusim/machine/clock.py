"""SimPy's clock and what happens on it, without what SimPy loads besides.

The package ``simpy`` asks at once for its own version, and what tells that loads readers of e-mail and of archives:
a seventh of the time in which all that a run needs is loaded. So the package is put in its place unread, its modules
are loaded from it, and it is read when something is asked of it itself.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any


def _leave_unread(name: str) -> None:
    """Put a package in its place whose own code runs when an attribute is asked of it that its modules are not.

    As ``importlib.util.LazyLoader`` does, from whose packages no module can be imported before they are read.
    """
    spec = None if name in sys.modules else find_spec(name)
    # What is not installed is told by the imports below.
    if spec is None or spec.loader is None:
        return
    package, loader = module_from_spec(spec), spec.loader

    def read(attribute: str) -> Any:
        # The first time only: its own code may ask while it runs.
        if package.__dict__.pop("__getattr__", None):
            loader.exec_module(package)
        return package.__getattribute__(attribute)

    package.__dict__["__getattr__"] = read
    sys.modules[name] = package


_leave_unread("simpy")

from simpy.core import Environment, StopSimulation  # noqa: E402
from simpy.events import Event  # noqa: E402

__all__ = ["Environment", "Event", "StopSimulation"]
