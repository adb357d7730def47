"""Inner loops run also where Numba may keep nothing."""

from __future__ import annotations

import numba

from tpusim import compiled


def test_without_a_folder_to_write_to_a_loop_is_compiled_anew(monkeypatch):
    """Numba refuses then to keep what it compiles, and only that."""
    compile_it = numba.njit

    def refuses(*functions, **settings):
        if settings.get("cache"):
            raise RuntimeError("cannot cache function 'twice': no locator available for file")
        return compile_it(*functions, **settings)

    monkeypatch.setattr(compiled.numba, "njit", refuses)
    twice = compiled.njit(cache=True, error_model="numpy")(lambda number: 2 * number)
    assert twice(4) == 8
