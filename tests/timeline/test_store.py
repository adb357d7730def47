"""Time lines as files."""

from __future__ import annotations

import pytest

from tests.analysis.test_analysis import TIMELINE
from tpusim.errors import ProgramError
from tpusim.timeline.store import load_timeline, save_timeline


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_saved_time_line_reads_back_equal(tmp_path, name):
    """Plain and compressed."""
    save_timeline(TIMELINE, tmp_path / name)
    assert load_timeline(tmp_path / name) == TIMELINE


@pytest.mark.parametrize("data", [b"", b"{}", b"\x1f\x8bxx", b'{"program": 1}'])
def test_other_files_are_refused(tmp_path, data):
    """The error names the file."""
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(ProgramError, match=r"t\.json: not a saved time line"):
        load_timeline(tmp_path / "t.json")
