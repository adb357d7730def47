"""Findings about a program on a terminal, what saves most first."""

from __future__ import annotations

from tpusim.analysis.answers.findings import Finding, Findings
from tpusim.report.tables import Printer, escape, print_caveats, size_text, time_text, times_text

_BASES = {
    "steps": "the program with these steps changed, run",
    "compiled": "both forms compiled by tpusim, and run",
    "memory": "its memory, not its time",
    "bound": "a bound, from the same operations in units that never wait, run",
}


def render_advice(found: Findings, console: Printer) -> None:
    """Print what would make a program faster, and how each saving was found."""
    head = f"[bold]{escape(found.program)}[/bold] on {escape(found.chip)}: advice (simulated)"
    console.print(head)
    console.print()
    changes = sum(found.tried.values())
    tried = f"{changes} {'change' if changes == 1 else 'changes'} of {len(found.tried)} kinds"
    console.print(f"  time      {time_text(found.time_ps)}; tried {tried}, each by itself: savings do not add up")
    if not found.findings:
        console.print("  nothing that was tried saves a hundredth of the time")
    for number, finding in enumerate(found.findings, start=1):
        console.print()
        _print_finding(number, finding, console)
    print_caveats(console, (found.estimates, found.warnings))


def _print_finding(number: int, finding: Finding, console: Printer) -> None:
    console.print(f"[bold]{number}. {_saving(finding)}[/bold]: {escape(finding.what)}")
    console.print(f"   change    {escape(finding.change)}", soft_wrap=True)
    where = f", {finding.source}" if finding.source else ""
    console.print(f"   where     {escape(', '.join(finding.ops) + where)}", soft_wrap=True)
    both = " -> ".join(times_text(finding.before_ps, finding.after_ps))
    times = f", {both}" if finding.basis != "memory" else ""
    if finding.compiled_ps not in (0, finding.before_ps):
        times += f": the share that tpusim's form of it saves, which takes {time_text(finding.compiled_ps)}"
    console.print(f"   checked   {finding.rule}: {_BASES[finding.basis]}{times}")


def _saving(finding: Finding) -> str:
    """Return what a finding saves, time before memory."""
    texts = []
    if finding.saved_ps:
        most, same = ("at most ", " with the same operations") if finding.basis == "bound" else ("", "")
        texts.append(f"saves {most}{finding.share:.1%} of the time ({time_text(finding.saved_ps)}){same}")
    if finding.saved_bytes:
        verb = "saves" if finding.saved_bytes > 0 else "takes"
        texts.append(f"{verb} {size_text(abs(finding.saved_bytes))} of HBM")
    return ", ".join(texts)
