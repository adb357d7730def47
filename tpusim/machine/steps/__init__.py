"""How the core runs each kind of step: a file for each, whose handlers enter themselves into ``core.HANDLERS``."""

from __future__ import annotations

from tpusim.machine.steps import channel, collective, control, copy, host, kernel

__all__ = ["channel", "collective", "control", "copy", "host", "kernel"]
