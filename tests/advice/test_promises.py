"""What advice promises beside what the links and memories of a chip can carry at all."""

from __future__ import annotations

import pytest

from tests.house.source_tree import ROOT
from tpusim.advice.advise import advise
from tpusim.advice.trials import RULES, Case
from tpusim.analysis.roofline import roofline
from tpusim.pipeline.stages import run_program, simulate
from tpusim.program.module import Program

TRACES = ROOT / "traces"
OF_HOST = sorted(TRACES.glob("host/*.hlo.txt.gz"))
NAMES = ("lstm_*", "mlp_*", "llama8b_*", "pipeline.*", "dlrm_*", "gnn_*", "worse/blocks_bad.*", "worse/remat_bad.*")
SOME = [path for name in NAMES for path in TRACES.glob(f"{name}.hlo.txt.gz")]

FED = """
HloModule feed, is_scheduled=true

ENTRY %main (w: f32[8,128]) -> f32[8,128] {
  %w = f32[8,128]{1,0:T(8,128)} parameter(0)
  %start = token[] after-all()
  %infeed = ((f32[131072,128]{1,0:T(8,128)}), token[]) infeed(%start), infeed_config=""
  ROOT %y = f32[8,128]{1,0:T(8,128)} add(%w, %w)
}
"""


def test_what_comes_from_the_host_takes_its_link_whatever_runs_beside_it(tmp_path):
    """64 MiB before an add of one register: no more than the add can be saved."""
    path = tmp_path / "feed.v5e.hlo.txt"
    path.write_text(FED)
    assert "host transfers" not in {finding.rule for finding in advise(path).findings}


@pytest.mark.parametrize("path", OF_HOST, ids=lambda path: path.name.partition(".")[0])
def test_no_advice_on_the_host_promises_less_than_the_roofline(path):
    """Of the same run: every byte still goes over the link."""
    run = simulate(path)
    roof_ps = roofline(run.timeline, run.chip).bound_ps
    assert all(finding.after_ps >= roof_ps for finding in advise(path).findings)


@pytest.mark.parametrize("schedule", ["", "compiled"])
def test_every_saving_is_of_the_run(schedule):
    """In f32, of which tpusim makes another program than the TPU compiler: its share is the same, and it is said."""
    advice = advise(TRACES / "worse/wide_bad.v5e.hlo.txt.gz", schedule=schedule)
    assert {finding.before_ps for finding in advice.findings} == {advice.time_ps}
    of_both = [finding.compiled_ps for finding in advice.findings if finding.basis == "compiled"]
    assert of_both
    assert all((made_ps == advice.time_ps) == bool(schedule) for made_ps in of_both)
    assert ("tpusim's form" in str(advice)) != bool(schedule)


@pytest.mark.parametrize("path", OF_HOST + SOME, ids=lambda path: path.name.partition(".")[0])
def test_no_alternative_ends_before_what_it_began(path):
    """By every rule that changes steps: what outlasted them would not be paid for."""
    case = Case(simulate(path), None)
    tried = [trial.alternative for rule in RULES.values() for trial in rule(case)]
    runs = [run_program(one, case.chip, None) for one in tried if isinstance(one, Program)]
    assert all(record.end_ps <= run.total_ps for run in runs for record in run.records)
