"""What holds for all tests: JAX computes on the CPU, and Hypothesis tries the same examples on every run."""

from __future__ import annotations

import os

from hypothesis import settings

# Without this JAX looks for accelerators first, and warns where it finds none.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# A deadline measures the neighbours on a busy machine, and a random example fails for someone else first.
settings.register_profile("tpusim", deadline=None, derandomize=True)
settings.load_profile("tpusim")
