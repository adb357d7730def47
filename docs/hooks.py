"""Makes the pages of the site that say what stands in the project already: README, reference, commands, chips."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import tpusim
from tpusim.cli.main import parser_of_all
from tpusim.hardware.load import chip_facts, chip_names

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)]+)\)")
_SITE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made; MkDocs calls this before it builds."""
    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def _file(name: str) -> Callable[[], str]:
    """Return what makes a page of a file of the project: links to files that are no pages become their names."""

    def linked(found: re.Match[str]) -> str:
        text, target = found.groups()
        page = _SITE.get(target.split("#")[0])
        return f"[{text}]({page})" if page else text if text.startswith("`") else f"{text} (`{target}`)"

    return lambda: _LINK.sub(linked, (ROOT / name).read_text(encoding="utf-8"))


def _api() -> str:
    """Return the reference of all public names, from their docstrings."""
    lines = ["# Python", "", "What `import tpusim` gives; the rooms behind it may change between versions.", ""]
    modules = [name for name in tpusim.__all__ if tpusim._HOMES.get(name) == "tpusim"]
    for title, wanted in (("Functions and classes", False), ("Modules", True)):
        lines += [f"## {title}", ""]
        for name in tpusim.__all__:
            if name != "__version__" and (name in modules) is wanted:
                lines += [f"::: {tpusim._HOMES[name]}.{name}", ""]
    return "\n".join([*lines, "::: tpusim.jax", ""])


def _commands() -> str:
    """Return the help of every command."""
    parser = parser_of_all()
    (chosen,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    lines = ["# Command line", "", "```text", parser.format_help(), "```"]
    for name, one in chosen.choices.items():
        lines += ["", f"## tpusim {name}", "", "```text", one.format_help(), "```"]
    return "\n".join(lines)


def _chips() -> str:
    """Return every figure of every chip, with where it comes from."""
    lines = [
        "# Chips",
        "",
        "Every figure that a run follows, as `configs/` has it: `tpusim chips NAME` prints the same.",
    ]
    for name in chip_names():
        lines += ["", f"## {name}", "", "| key | value | confidence | source | note |", "|---|---|---|---|---|"]
        for fact in chip_facts(name):
            words = (fact.key, f"{fact.value} {fact.unit}", fact.confidence, fact.source, fact.note)
            lines.append(f"| {' | '.join(word.replace('|', '/').replace(chr(10), ' ').strip() for word in words)} |")
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "index.md": _file("README.md"),
    "contributing.md": _file("CONTRIBUTING.md"),
    "changelog.md": _file("CHANGELOG.md"),
    "api.md": _api,
    "commands.md": _commands,
    "chips.md": _chips,
}
