"""Real processes: exit codes, pipes, signals, terminals."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

# Private names: parts of a command are checked without a command line
from optsched.cli.main import terminated_like_interrupted
from optsched.errors import NOTHING_YET
from optsched.solvers.interrupt import interrupt_flag

pytestmark = pytest.mark.process

SCRIPT = [sys.executable, "-m", "optsched"]
INTEGRAL = ("-f", "max-throughput", "-O", "integral=true")


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*SCRIPT, *map(str, arguments)],
        **{"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, **options},
    )


def finish(process: subprocess.Popen[bytes], data: bytes | None = None) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(data, timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def test_installed_script() -> None:
    script = Path(sys.executable).parent / "optsched"
    if not script.exists():
        pytest.skip("optsched is not installed as a script here")
    done = subprocess.run([script, "solve", "--nothing"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("optsched: error: no such option: --nothing")


def test_exit_codes_of_processes(tmp_path: Path) -> None:
    started = {
        0: start("solve", "@quickstart", "--json"),
        2: start("solve", "@quickstart", "--nothing"),
        3: start("solve", tmp_path / "missing.json"),
        4: start("solve", "@infeasible"),
        7: start("solve", "@quickstart", "--solver", "gurobi"),
    }
    for code, process in started.items():
        found, out, err = finish(process)
        assert found == code
        assert "\x1b" not in out + err
        assert "Traceback" not in err
        assert json.loads(out)["status"] == "optimal" if code == 0 else len(err.splitlines()) <= 2


def test_standard_input_and_a_pipe_of_two() -> None:
    first = start("export", "@quickstart", "-o", "-")
    second = start("solve", "-", "--json", stdin=first.stdout)
    third = start("verify", "@quickstart", "-", stdin=second.stdout)
    assert first.stdout is not None
    assert second.stdout is not None
    first.stdout.close()
    second.stdout.close()
    code, out, err = finish(third)
    assert (code, out, err) == (0, "the solution is right, its bound was recomputed\n", "")
    assert (first.wait(), second.wait()) == (0, 0)
    for process in (first, second):
        assert process.stderr is not None
        process.stderr.close()


@pytest.mark.parametrize(
    "given",
    [
        ("solve", "@large", "--json"),
        pytest.param(("solve", "@large"), marks=pytest.mark.study),
        ("--help",),
        ("--version",),
    ],
)
def test_a_reader_that_goes_away(given: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = start(*given, stdout=writing)
    os.close(writing)
    code, _, err = finish(process)
    notes = [line for line in err.splitlines() if line.startswith("optsched: note: ")]
    assert (code, err.splitlines()) == (0, notes)


def test_output_is_written_although_the_reader_has_gone(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = start("solve", "@quickstart", "-o", tmp_path / "o.json", stdout=writing)
    os.close(writing)
    assert finish(process)[0] == 0
    assert json.loads((tmp_path / "o.json").read_text())["status"] == "optimal"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("given", [("solve", "@quickstart"), ("--help",)])
def test_a_disk_that_is_full(given: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        code, _, err = finish(start(*given, stdout=full))
    error = "optsched: error: cannot write standard output: No space left on device\n"
    assert code == 2 and err.endswith(error) and err.count("error:") == 1


def test_closed_streams() -> None:
    command = " ".join([*SCRIPT, "solve", "@quickstart"])
    assert subprocess.run(["sh", "-c", f"{command} >&- 2>&-"]).returncode == 0


# --- Ctrl-C --------------------------------------------------------------------------------------------------------


@pytest.mark.clock
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_with_an_incumbent(hard: Path, tmp_path: Path, number: int) -> None:
    process = start("solve", hard, *INTEGRAL, "-o", tmp_path / "o.json", "-v")
    assert process.stderr is not None
    process.stderr.readline()  # the log tells that the solver has been chosen
    time.sleep(0.8)  # the first incumbent comes after 0.1
    process.send_signal(number)
    code, out, err = finish(process)
    assert code == 0
    assert "status       feasible  interrupted\n" in out
    assert "Traceback" not in err
    told = json.loads((tmp_path / "o.json").read_text())
    assert (told["status"], told["termination"], told["reproducible"]) == (
        "feasible",
        "interrupted",
        False,
    )
    assert told["certificate"]["ok"] is True


def test_interrupted_before_anything_was_found(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    process = start("solve", "-", "-o", tmp_path / "o.json", "--log", log, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(
        b" " * 1_000_000
    )  # more than a pipe holds: once it is written, the command reads its instance
    process.stdin.flush()
    assert process.poll() is None and log.exists()
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out, err) == (130, "", f"optsched: {NOTHING_YET}\n")
    assert list(tmp_path.iterdir()) == [log]


def test_sigterm_interrupts_also_where_ctrl_c_is_ignored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with terminated_like_interrupted():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with interrupt_flag() as flag:
            signal.raise_signal(signal.SIGTERM)
            assert flag.is_set()
        usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        finally:
            signal.signal(signal.SIGINT, usual)
    assert signal.getsignal(signal.SIGTERM) is before


# --- a terminal ----------------------------------------------------------------------------------------------------


def on_a_terminal(*arguments: object, interrupt_at: str = "") -> tuple[int, str]:
    """Run with all streams on a terminal of 80 columns; Ctrl-C is typed when a text has appeared."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(COLUMNS="80", TERM="xterm")
        os.environ.pop("NO_COLOR", None)
        os.execv(sys.executable, [*SCRIPT, *map(str, arguments)])
    text, started, typed = b"", time.monotonic(), False
    while time.monotonic() - started < 60:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            text += data
        if interrupt_at and not typed and interrupt_at.encode() in text:
            os.write(terminal, b"\x03")
            typed = True
    status = os.waitpid(child, 0)[1]
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), text.decode()


def test_progress_line_on_a_terminal(hard: Path) -> None:
    code, text = on_a_terminal("solve", hard, *INTEGRAL, interrupt_at=", bound 5")
    assert code == 0
    assert "solving: incumbent 5" in text
    assert ", bound 5" in text
    assert "s (Ctrl-C stops)" in text
    assert text.index("solving:") < text.index("hard: max-throughput")
    assert "\x1b[?25h" in text  # the cursor is back


@pytest.mark.clock
def test_no_progress_line_where_nobody_wants_one(hard: Path) -> None:
    code, text = on_a_terminal("solve", hard, *INTEGRAL, "-q", "--time-limit", "1.2")
    assert (code, text) == (0, "")


@pytest.mark.clock
def test_progress_line_waits_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.cli import progress as module
    from optsched.cli.shell import Shell

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def shown(patience: float) -> str:
        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setattr(module, "PATIENCE", patience)
        with module.progress(Shell(), "solving") as on_progress:
            assert on_progress is not None
            time.sleep(0.3)
        return sys.stderr.getvalue()  # type: ignore[attr-defined]

    assert shown(30.0) == ""
    assert "solving: 0 s (Ctrl-C stops)" in shown(0.0)
    assert module.PATIENCE == 0.0
    monkeypatch.undo()
    assert module.PATIENCE == 1.0
