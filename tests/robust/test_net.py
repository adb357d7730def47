"""One net under everything: faults have a code of their own, streams may be closed, and an interrupt is quiet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

import tpusim
from tests.cli.commands import output_of, refusal_of
from tpusim.cli.entry import _interrupt
from tpusim.cli.main import main
from tpusim.errors import ProgramError
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.shapes import notation

MLP = str(Path(__file__).parents[2] / "traces" / "mlp_b1024.v5e.hlo.txt.gz")
COMMAND = f"{sys.executable} -m tpusim"


def shell(line: str, **settings) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell and return what became of it."""
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False, **settings)


def test_a_fault_of_our_own_names_its_stage_and_asks_for_a_report(capsys, monkeypatch):
    """A traceback would say nothing to a user, and code 1 would look as if the input were wrong."""
    monkeypatch.setattr(notation, "parse_shape", lambda text: {}["missing"])
    assert main(["layout", "f32[8]"]) == 70
    said = capsys.readouterr().err
    assert "a fault of tpusim itself in the stage 'cli': KeyError: 'missing'" in said
    assert "Please report this" in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_end_quietly(closed):
    """Python has no stream then, and the first file that is opened has its number."""
    done = shell(f"{COMMAND} layout 'f32[8,128]' {closed}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", ""),
        ("atexit.register(print, 'at exit')", "goes on\nat exit\n"),
        ("sys.setprofile(lambda *_: None)", "goes on\n"),
        (
            "last = lambda: (threading.main_thread().join(), print('the last'))\nthreading.Thread(target=last).start()",
            "goes on\nthe last\n",
        ),
    ],
)
def test_a_process_ends_at_once_unless_something_waits_for_its_end(before, said):
    """Coverage, profilers and pools do; all that was printed has come through a pipe, and so has the code."""
    modules = "import atexit, sys" + ", threading" * ("threading" in before)
    code = f"{modules}\n{before}\nfrom tpusim.cli.entry import run_process\ncode = run_process()\n"
    command = [sys.executable, "-c", f"{code}print('goes on')\nsys.exit(code)"]
    done = subprocess.run([*command, "layout", "f32[8,128]"], capture_output=True, text=True, check=True)
    assert "f32[8,128]" in done.stdout
    assert done.stdout.endswith(f"\n{said}")
    assert ("goes on" in done.stdout) == bool(said)
    refused = subprocess.run([*command, "check", "nowhere.hlo"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, said)
    assert refused.stderr.startswith("tpusim: nowhere.hlo")


@pytest.mark.slow
def test_a_program_from_a_closed_stream_is_refused():
    """There is nothing to read."""
    done = shell(f"{COMMAND} check - <&-")
    assert done.returncode == 1
    assert "<stdin>" in done.stderr


@pytest.mark.slow
def test_a_reader_that_has_gone_is_told_by_the_code():
    """128 and the number of SIGPIPE, as the shell reports programs that the signal ends."""
    done = shell(f"{COMMAND} ops --json | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout.split(), done.stderr) == (["141"], "")


@pytest.mark.slow
@pytest.mark.parametrize("after_seconds", [0.05, 0.1, 0.2, 0.35, 0.5, 0.8])
def test_an_interrupt_is_quiet_at_any_moment(tmp_path, after_seconds):
    """While modules load as well as while a program runs."""
    command = [sys.executable, "-m", "tpusim", "run", MLP, "--html", str(tmp_path / "run.html")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(after_seconds)
    child.send_signal(signal.SIGINT)
    out, error = child.communicate(timeout=60)
    # A machine may be so fast that all is over, or so slow that Python itself has not begun.
    assert child.returncode in (0, 130, -signal.SIGINT) or "site" in error or "runpy" in error
    assert "tpusim" not in error
    assert not list(tmp_path.glob(".tpusim-*"))
    assert child.returncode or out


AT_THE_FIRST_MODULE = """
import _signal, sys

# Shells have what they run in the background ignore it.
_signal.signal(_signal.SIGINT, _signal.default_int_handler)

class Interrupts:
    def find_spec(self, name, path, target=None):
        if not name.startswith(("tpusim", "__future__")):
            _signal.raise_signal(_signal.SIGINT)

# What is built into Python, or comes with it in one piece, is found before.
sys.meta_path.insert(2, Interrupts())
from tpusim.cli.entry import run_process
sys.exit(run_process())
"""


def test_an_interrupt_is_quiet_before_any_module_of_others_loads():
    """On a slow machine that takes long: an interrupt showed the line on which ``typing`` was to load."""
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_FIRST_MODULE, "ops"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize(("name", "is_own"), [("tpusim.pipeline.stages", True), ("typing", False), ("msgspec", False)])
def test_only_our_own_code_is_interrupted(name, is_own):
    """In others' the signal comes again a moment later, until they have returned."""
    names = {"__name__": name}
    exec("import sys\nframe = sys._getframe()", names)
    before = signal.getsignal(signal.SIGALRM)
    try:
        with pytest.raises(KeyboardInterrupt) if is_own else nullcontext():
            _interrupt(signal.SIGINT, names["frame"])
        assert (signal.setitimer(signal.ITIMER_REAL, 0)[0] > 0) != is_own
    finally:
        signal.signal(signal.SIGALRM, before)


WITHIN_OTHERS = """
import os, signal, sys

def interrupt(frame, event, argument):
    names = [each.f_globals.get("__name__", "") for each in (frame, frame.f_back) if each]
    ready = "tpusim.cli.main" in sys.modules and signal.getsignal(signal.SIGINT) != signal.SIG_DFL
    if ready and names[0] == OTHER and event == "call" and names[-1].startswith("tpusim.semantics"):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(interrupt)
from tpusim.cli.entry import run_process
sys.exit(run_process())
"""


@pytest.mark.parametrize("other", ["typing", "msgspec._utils"])
def test_an_interrupt_waits_for_the_code_of_others_to_return(other):
    """Where msgspec asks for what a class is made of, an exception would end the process with a fault of memory."""
    command = [sys.executable, "-c", WITHIN_OTHERS.replace("OTHER", repr(other)), "run", MLP]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.slow
def test_names_do_not_drive_the_terminal(capsys, tmp_path):
    """Whoever wrote a lowered program does not write to the screen of those who run it."""
    escape, path = r"\u001b]0;mine\u0007\u001b[31m", tmp_path / "evil.json"
    assert main(["lower", MLP, "-o", str(path)]) == 0
    path.write_text(path.read_text().replace('"name": "', f'"name": "{escape}', 1))
    capsys.readouterr()
    assert main(["run", str(path)]) == 0
    found = capsys.readouterr()
    assert "\N{REPLACEMENT CHARACTER}]0;mine" in found.out
    assert not set("\x1b\x07") & set(found.out + found.err)


@pytest.mark.slow
def test_letters_that_a_terminal_lacks_are_escaped(tmp_path):
    """Names are in any script."""
    path = tmp_path / "names.v5e.hlo.txt"
    path.write_text('HloModule m\n\nENTRY e {\n  ROOT p = f32[2] parameter(0), metadata={op_name="\u00e9"}\n}\n')
    done = shell(f"{COMMAND} memory {path}", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\xe9" in done.stdout


@pytest.mark.parametrize(
    "arguments", [("lower",), ("run", "--stop-after", "lowering"), ("run", "--stop-after", "machine")]
)
def test_what_a_stage_hands_on_does_not_drive_the_terminal(capsys, tmp_path, arguments):
    """It is JSON in ASCII, of the same names."""
    path = tmp_path / "evil.json"
    path.write_text('{"format":"tpusim-program-2","name":"\\u202e\\u007f\\ud83d\\ude00","chip":"v5e","steps":[]}')
    out = output_of(capsys, arguments[0], str(path), *arguments[1:])
    assert out.isascii()
    assert "\x7f" not in out
    assert "\u202e\x7f\U0001f600" in json.loads(out).values()


@pytest.mark.parametrize("command", [("fmt",), ("run", "--stop-after", "text"), ("compile", "-o", "-")])
def test_hlo_text_does_not_drive_the_terminal(capsys, tmp_path, command):
    """It says the same."""
    path, name = tmp_path / "evil.v5e.hlo.txt", "\x1b[31m\u202e\u00e9\U0001f600"
    rest = f'metadata={{op_name="{name}"}}, frontend_attributes={{a="{name}"}}, backend_config={{"a":"{name[1:]}"}}'
    path.write_text(f"HloModule m\n\nENTRY e {{\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] negate(p), {rest}\n}}\n")
    out = output_of(capsys, command[0], str(path), *command[1:])
    assert out.replace("\n", "").isprintable()
    again = tmp_path / "again.hlo"
    again.write_text(out)
    assert output_of(capsys, "fmt", str(again)) == out
    negate = tpusim.load(again).entry["r"]
    assert negate.metadata.op_name == frontend_attributes(negate.attributes)["a"] == name
    assert negate.backend_config.fields["a"] == name[1:]


def test_a_message_has_no_endless_line():
    """A name may have any length."""
    assert len(str(ProgramError("x" * 10**6))) < 3000
    assert str(ProgramError("a\n" * 5000)) == "a\n" * 5000


def test_messages_do_not_drive_the_terminal(capsys, tmp_path):
    """Also those about a file's own name."""
    assert "\x1b" not in refusal_of(capsys, "check", str(tmp_path / "\x1b[31m.hlo"))
    assert "\x1b" not in str(ProgramError("\x1b[31m"))


def test_a_backend_that_is_not_there_draws_pictures_all_the_same(tmp_path):
    """They go to files; the variable is for windows and notebooks."""
    target = tmp_path / "a.png"
    done = shell(f"{COMMAND} plot layout 'f32[8,128]' -o {target}", env=os.environ | {"MPLBACKEND": "nonsense"})
    assert (done.returncode, done.stderr, target.exists()) == (0, "", True)


@pytest.mark.parametrize("found", ["abc", "9" * 40])
def test_a_time_that_is_none_is_refused_by_its_name(tmp_path, found):
    """Matplotlib reads the variable as it writes."""
    target = tmp_path / "out.pdf"
    done = shell(f"{COMMAND} plot layout 'f32[8,128]' -o {target}", env=os.environ | {"SOURCE_DATE_EPOCH": found})
    assert done.returncode == 1
    assert "SOURCE_DATE_EPOCH: expected a number of seconds" in done.stderr
    assert not target.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [{"LANG": "C", "PYTHONIOENCODING": "ascii"}, {"HOME": "/nowhere"}, {"COLUMNS": "1"}]
)
def test_an_odd_environment_changes_no_outcome(setting):
    """No home, no letters but those of ASCII, no room."""
    plain = {key: value for key, value in os.environ.items() if key != "HOME"}
    done = shell(f"{COMMAND} run {MLP}", env=plain | setting)
    assert (done.returncode, done.stderr) == (0, "")
