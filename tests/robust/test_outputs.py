"""Every output is written whole or not at all: on a full disk, side by side, and when the process is killed."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.commands import output_of, refusal_of
from tests.study.cases import kernel_module
from tpusim import files
from tpusim.cli.main import main
from tpusim.files import whole_file, write_whole

ROOT = Path(__file__).parents[2]
MLP = str(ROOT / "traces" / "mlp_b1024.v5e.hlo.txt.gz")
SMALL = str(ROOT / "tests" / "data" / "numeric" / "argmax_argmin.hlo.txt.gz")


def test_what_stood_there_stays_until_all_is_written(tmp_path):
    """A writer that fails half way leaves the old file, and nothing of its own."""
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), whole_file(path) as beside:
        beside.write_text("half of \udcff", encoding="utf-8")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_whole(tmp_path, monkeypatch):
    """The disk says so when it is asked for the bytes, which is before the file takes its place."""
    path = tmp_path / "result.json"
    path.write_text("old")

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(path, "new")
    assert (caught.value.filename, path.read_text()) == (str(path), "old")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_only_to_be_read_is_not_replaced(tmp_path, monkeypatch):
    """To rename over it would need no leave of the file's, only of its folder's."""
    path = tmp_path / "result.json"
    path.write_text("old")
    # Root may write to any file.
    monkeypatch.setattr(files.os, "access", lambda name, mode: False)
    with pytest.raises(PermissionError, match=r"result\.json"):
        write_whole(path, "new")


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(tmp_path):
    """As when it is written to in place."""
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o640)


def test_a_new_file_has_the_mode_of_new_files(tmp_path):
    """Temporary files are for their owner only."""
    write_whole(tmp_path / "ours", "x")
    (tmp_path / "theirs").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


def test_a_link_to_itself_is_refused(tmp_path):
    """It names no file that could be written; to take its place would lose it."""
    path = tmp_path / "loop"
    path.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        write_whole(path, "new")
    assert path.is_symlink()


@pytest.mark.parametrize("command", ["run --chip v5e --quiet --save", "exec --random 1 --outputs"])
def test_pipes_are_written_to_by_their_names(command):
    """As shells give them, ``>(wc -c)``: what stands behind the name is no path, and archives cannot go back in it."""
    verb, *options = command.split()
    read, write = os.pipe()
    arguments = [sys.executable, "-m", "tpusim", verb, SMALL, *options, f"/dev/fd/{write}"]
    process = subprocess.Popen(arguments, pass_fds=[write], stdout=subprocess.DEVNULL)
    os.close(write)
    with open(read, "rb") as pipe:
        content = pipe.read()
    assert process.wait() == 0
    assert content.startswith(b"{" if verb == "run" else b"PK")
    assert main(["exec", SMALL, "--random", "1", "--outputs", os.devnull]) == 0


def test_an_error_of_what_is_written_to_names_it():
    """Python says what failed, and not where."""
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole("/dev/full", "new")
    assert caught.value.filename == "/dev/full"


def test_what_is_no_file_is_written_to(tmp_path):
    """A rename would put a file into the place of a pipe, or of /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        write_whole(pipe, "through")
        assert read.result(timeout=30) == "through"
    assert pipe.is_fifo()


def test_outputs_have_the_name_that_was_given(capsys, tmp_path):
    """NumPy puts an ending of its own behind names."""
    path = tmp_path / "values.dat"
    output_of(capsys, "exec", SMALL, "--random", "1", "--outputs", str(path))
    assert list(tmp_path.iterdir()) == [path]
    assert np.load(path).files


@pytest.mark.slow
def test_runs_side_by_side_have_folders_of_their_own(tmp_path):
    """Six at once, none of which finds the number taken that it has seen free."""
    command = [sys.executable, "-m", "tpusim", "run", MLP, "--quiet", "--xprof", str(tmp_path), "--save"]
    runs = [subprocess.Popen([*command, str(tmp_path / "one.json")], stdout=subprocess.DEVNULL) for _ in range(6)]
    assert [run.wait(timeout=120) for run in runs] == [0] * 6
    assert len(list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))) == 6
    json.loads((tmp_path / "one.json").read_text())


@pytest.mark.parametrize("option", ["--html", "--trace", "--save", "--links", "--counts", "--model-explorer"])
def test_a_folder_that_is_not_there_is_refused(capsys, tmp_path, option):
    """By the name that was given, and not by that of a temporary file."""
    path = tmp_path / "missing" / "out.json"
    assert str(path.with_name("out")) in refusal_of(capsys, "run", MLP, option, str(path))


@pytest.mark.slow
def test_a_disk_that_is_really_full_leaves_the_old_file(tmp_path):
    """On a file system of 64 KiB, where the machine lets tests have one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        path = disk / "run.html"
        path.write_text("the old file")
        command = [sys.executable, "-m", "tpusim", "run", MLP, "--html", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, path.read_text()) == (1, "the old file")
        assert "run.html: No space left on device" in done.stderr
        assert list(disk.iterdir()) == [path]
    finally:
        subprocess.run(["umount", disk], check=True)


_READ_ONLY = """
mount --make-rprivate / && mount --bind / / && mount -o remount,bind,ro / || exit 77
for place in /tmp /var/tmp /dev/shm "$0"; do
    if mountpoint -q "$place"; then mount -o remount,bind,ro "$place" || exit 77; fi
done
if touch "$0/probe" 2> /dev/null; then exit 77; fi
exec "$@"
"""
"""Makes all file systems read-only for a command, in a name space of its own; 77 where that cannot be had."""


_COMMANDS = "import json, sys; from tpusim.cli.main import main; print([main(one) for one in json.loads(sys.argv[1])])"


def where_nothing_can_be_written(folder: Path, *commands: tuple[str, ...]) -> tuple[list[int], str]:
    """Run commands where there is no home and no file can be made; return their codes and what they said is wrong."""
    line = ["unshare", "--mount", "bash", "-c", _READ_ONLY, folder, sys.executable, "-c", _COMMANDS]
    setting = os.environ | {"HOME": "/nowhere"}
    try:
        done = subprocess.run([*line, json.dumps(commands)], capture_output=True, text=True, check=False, env=setting)
    except FileNotFoundError:
        pytest.skip("no name spaces of mounts here")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this user may not mount a file system")
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_what_writes_nothing_runs_where_nothing_can_be_written(tmp_path):
    """Numba keeps what it has compiled if it can, and works without."""
    found = where_nothing_can_be_written(tmp_path, ("run", MLP), ("exec", SMALL, "--random", "1"))
    assert found == ([0, 0], "")


@pytest.mark.slow
def test_outputs_on_a_read_only_file_system_are_refused(tmp_path):
    """By their names, and with what is the matter."""
    options = ("--html", "--trace", "--save", "--links", "--counts", "--xprof", "--model-explorer")
    commands = [("run", MLP, option) for option in options]
    commands += [("exec", SMALL, "--random", "1", "--outputs"), ("lower", MLP, "-o")]
    names = [str(tmp_path / f"out{number}.json") for number in range(len(commands))]
    codes, said = where_nothing_can_be_written(
        tmp_path, *((*command, name) for command, name in zip(commands, names, strict=True))
    )
    assert codes == [1] * len(commands)
    refused = [line for line in said.splitlines() if "Read-only file system" in line]
    assert [name for name in names if not any(name in line for line in refused)] == []


def read_whole(path: Path) -> None:
    """Read a file of its form to its end; raise whatever its reader raises of half a file."""
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    if content.startswith(b"PK"):
        assert zipfile.ZipFile(path).testzip() is None
    elif content.startswith(b"\x89PNG"):
        Image.open(path).load()
    elif path.suffix == ".html":
        assert content.endswith(b"</html>\n")
    elif path.suffix == ".csv":
        assert len({line.count(b",") for line in content.splitlines()}) == 1
    elif path.suffix in (".yaml", ".pb"):
        assert content
    elif path.suffix == ".json" or ".json" in path.name:
        json.loads(content)
    else:
        assert content.rstrip().endswith((b"}", b"</svg>"))


KILLS = 200


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills by signals")
def test_a_killed_process_leaves_no_half_file(tmp_path):
    """At 200 random moments while it writes one file after the other, of every form that there is."""
    command = [sys.executable, "-m", "tests.robust.writers", str(tmp_path), str(KILLS), "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith(".tpusim-")]
    assert len({path.name for path in found}) >= 15
    for path in found:
        read_whole(path)


NAMES = {"program": b".v5e.hlo", "wrong": b"wrong.v5e.hlo.txt", "chip": b".toml"}


@pytest.mark.skipif(sys.platform != "linux", reason="file systems elsewhere have names in UTF-8 only")
@pytest.mark.parametrize(
    "words",
    [
        ["run", "{program}", "--chip", "{chip}", "--json"],
        ["run", "{program}", "--chip", "{chip}", "--html", "{folder}/page.html", "--save", "{folder}/saved.json"],
        ["lower", "{program}", "--chip", "{chip}"],
        ["lower", "{program}", "-o", "{folder}/lowered.json"],
        ["chips", "{chip}", "--json"],
        ["sweep", "{program}", "{wrong}", "--jobs", "1", "--quiet", "--csv", "{folder}/rows.csv"],
        ["sweep", "{program}", "{wrong}", "--chip", "{chip}", "--jobs", "1", "--quiet", "--json"],
        ["scale", "{folder}/{{n}}.v5e.hlo", "--quiet", "--json"],
    ],
    ids=" ".join,
)
def test_names_that_are_not_utf_8_end_in_text(tmp_path, capsys, words):
    r"""Other bytes are written as ``\udcff``: no format in UTF-8 has a place for them."""
    names = {name: tmp_path / os.fsdecode(b"\xff" + end) for name, end in NAMES.items()}
    names["program"].write_text(kernel_module().text, encoding="utf-8")
    names["wrong"].write_text("HloModule m\nENTRY", encoding="utf-8")
    names["chip"].write_text('base = "v5e"\n', encoding="utf-8")
    assert main([word.format(folder=tmp_path, **names) for word in words]) == 0
    written = [path.read_bytes() for path in tmp_path.iterdir() if path.name.isascii() and path.is_file()]
    assert b"".join([*written, capsys.readouterr().out.encode("utf-8")]).decode("utf-8")
