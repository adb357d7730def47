"""The pages of the site: their code runs, and the site builds without a warning with every public name in it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tpusim
from tpusim.cli.main import main
from tpusim.study.spec import read_spec

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/pages/guide.md"
README = ROOT / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

# What a block of the README takes for granted, by a word of it.
GIVEN = {
    "tpusim.execute(module, [a, b])": "import numpy as np; a, b = np.ones((64, 256), 'f'), np.ones((256, 128), 'f')",
    "programs={": "def mlp(x, w): return jax.nn.relu(x @ w)\n"
    "def arrays(n): return [jax.ShapeDtypeStruct(s, 'bfloat16') for s in ((n, 512), (512, 512))]",
    # In the name that the block sees, not in JAX itself.
    "compiled.as_text()": "from types import SimpleNamespace\n"
    "step = SimpleNamespace(lower=lambda: step, compile=lambda: step, as_text=lambda: 'HloModule m')\n"
    "jax, arguments = SimpleNamespace(jit=lambda function: function), ()",
}


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the blocks of a page in some languages, in their order."""
    return [code for language, code in BLOCK.findall(page.read_text(encoding="utf-8")) if language in languages]


def commands() -> list[str]:
    """Return every line of the guide and the README that calls the program itself."""
    lines = [line for page in (GUIDE, README) for block in blocks(page, "sh") for line in block.splitlines()]
    # The study is thousands of runs of programs that the reader has: the next test reads it.
    return [line for line in lines if re.match(r"(PYTHONPATH=\w+ )?tpusim ", line) and "study.toml" not in line]


def run_block(code: str, monkeypatch, folder: Path) -> None:
    """Run a block of the README in a folder that has the project's programs."""
    (folder / "traces").symlink_to(ROOT / "traces")
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    given = [text for word, text in GIVEN.items() if word in code]
    exec("\n".join(["import jax, pathlib, tpusim", *given]), names)
    exec(compile(code, "README.md", "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("line", commands())
def test_a_command_of_a_page_runs(line, monkeypatch, tmp_path, capsys):
    """With exit code 0, where the project's files are at hand, and nothing written into it."""
    words = shlex.split(line, comments=True)
    if words[0].startswith("PYTHONPATH="):
        monkeypatch.syspath_prepend(str(ROOT / words.pop(0).partition("=")[2]))
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    monkeypatch.chdir(tmp_path)
    assert main(words[1:]) == 0
    capsys.readouterr()


def test_the_study_of_the_readme_is_read(tmp_path):
    """All of its axes, what is derived and what is kept out."""
    (study,) = blocks(README, "toml")
    (tmp_path / "study.toml").write_text(study)
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/gpt2_b8.v6e.hlo.txt.gz").symlink_to(ROOT / "traces/llama1b_decode_b16s2048.v6e.hlo.txt.gz")
    spec = read_spec(tmp_path / "study.toml")
    assert {"vmem.capacity_bytes", "mxu.rows", "vpu.lanes", "ici.links", "batch"} <= set(spec.keys)


@pytest.mark.slow
def test_the_python_of_the_guide_runs(monkeypatch, tmp_path, capsys):
    """One block after the other, as a reader would paste them."""
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"folder": tmp_path}
    for code in blocks(GUIDE, "python"):
        exec(compile(code, "guide.md", "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} >= {"timeline.png", "report.html", "trace.json.gz", "profile"}
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("code", [code for code in blocks(README, "python") if "compile_for" not in code], ids=len)
def test_the_python_of_the_readme_runs(code, monkeypatch, tmp_path, capsys):
    """Each block by itself, with what it takes for granted."""
    run_block(code, monkeypatch, tmp_path)
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("libtpu"), reason="libtpu is not installed (dependency group docs)")
@pytest.mark.parametrize("code", [code for code in blocks(README, "python") if "compile_for" in code], ids=len)
def test_what_the_readme_compiles_for_a_tpu_runs(code, monkeypatch, tmp_path, capsys):
    """As the other blocks, where there is a compiler for a TPU."""
    run_block(code, monkeypatch, tmp_path)
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("mkdocs"), reason="mkdocs is not installed (dependency group docs)")
def test_the_site_builds_and_has_every_public_name(tmp_path):
    """In a process of its own, every warning an error; the reference has an entry for each name."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(ROOT / "docs/mkdocs.yml")]
    done = subprocess.run([*command, "-d", str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "api.html").read_text(encoding="utf-8")
    missing = [
        name for name in tpusim.__all__ if name != "__version__" and not re.search(rf'id="[\w.]*\b{name}"', page)
    ]
    assert missing == []
