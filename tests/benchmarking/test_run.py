"""The runner of sweeps: rows whatever happens, limits, resuming after a kill, one writer at a time."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import odd_tasks
import pytest
from refusals import refuses

from optsched.benchmarking import (
    Benchmark,
    ResultsFile,
    Sweep,
    SweepProgress,
    Task,
    from_names,
    run_tasks,
)
from optsched.benchmarking.results_file import HEAD, parse_lines
from optsched.errors import InvalidInput, OptschedError, UsageError

# Private names: statistics, rows and their files are checked without a sweep
from optsched.executors.machine import cores
from optsched.processes import Child

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
TIMES = ("wall_s", "peak_memory_mb", "date")


def squares(count: int, **more: Any) -> list[Task]:
    return [Task.of({"x": x, **more}, {"name": f"square {x}"}) for x in range(count)]


def table(sweep: Sweep) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in sweep.rows]


# --- tasks ---------------------------------------------------------------------------------------------------------


def test_a_task_is_its_content() -> None:
    one, other = (
        Task.of({"b": [1, None], "a": "é"}, {"n": 1}),
        Task.of({"a": "é", "b": [1, None]}, {"n": 2}),
    )
    assert (
        one == other
        and hash(one) == hash(other)
        and one.key == other.key
        and one.spec == {"b": [1, None], "a": "é"}
    )
    assert (
        one.key == "3d92f6368f93f3cb36a4e7a721098054dfbfd705e31fa50409f2d99e0727a08c"
    )  # stays, from run to run
    assert Task.of({"a": "é", "b": [1]}).key != one.key
    with pytest.raises(UsageError, match="a task is plain JSON without NaN"):
        Task.of({"a": float("nan")})
    with pytest.raises(UsageError, match="a task is given twice"):
        run_tasks([one, other], odd_tasks.square)


# --- rows ----------------------------------------------------------------------------------------------------------

FATES = {
    "raise": ("error", "ValueError: a task of its own kind", 1),
    "refuse": (
        "error",
        str(InvalidInput("jobs[3].steps", "-1", "a number above 0", "instance.json")),
        3,
    ),
    "crash": ("error", "its process was ended by SIGSEGV", 7),
    "words": (
        "error",
        "its process was ended by SIGABRT: terminate called: the abacus is broken",
        7,
    ),
    "exit": ("error", "its process ended with exit code 3", 7),
    "nan": ("error", "ValueError: Out of range float values are not JSON compliant", 1),
    "die early": ("error", "its process was ended by SIGABRT while it prepared the task", 7),
    "sleep": ("limit", "did not end within 1.2 s and was killed", None),
    "gulp": ("memory", "ran out of memory", None),
    "fail early": ("ok", None, None),
    "print": ("ok", None, None),
    "large": ("ok", None, None),
}


@pytest.mark.clock
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux only")
def test_every_task_has_a_row_whatever_happens(tmp_path: Path) -> None:
    heard: list[tuple[str, int]] = []
    tasks = [Task.of({"do": fate}, {"fate": fate}) for fate in FATES]
    tasks.append(Task.of({"do": "child", "pid": str(tmp_path / "pid")}, {"fate": "child"}))
    sweep = run_tasks(
        tasks, odd_tasks.odd, prepare=odd_tasks.prepare, processes=2, time_limit=1.2, memory_limit=200e6,
        on_row=lambda row, progress: heard.append((row["fate"], progress.done)),
    )  # fmt: skip
    rows = {row["fate"]: row for row in sweep.rows}
    assert list(rows) == [*FATES, "child"]
    assert {
        name: (row["status"], row["error"], row.get("exit_code"))
        for name, row in rows.items()
        if name in FATES
    } == FATES
    assert rows["print"]["peak_memory_mb"] < 100 and 1.2 <= rows["sleep"]["wall_s"] < 12
    assert len(rows["large"]["x"]) == 3_000_000
    assert sorted(name for name, _ in heard) == sorted(rows) and [
        done for _, done in heard
    ] == list(range(1, len(tasks) + 1))
    child = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    until = time.monotonic() + 10.0
    while child.exists() and child.read_text().split()[2] != "Z" and time.monotonic() < until:
        time.sleep(0.05)
    assert (
        not child.exists() or child.read_text().split()[2] == "Z"
    )  # what a task started goes with it


@pytest.mark.clock
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux only")
def test_a_task_that_takes_more_memory_than_allowed_is_killed() -> None:
    # Without a limit of time: on a busy machine it would end the task before its memory is looked at.
    [row] = run_tasks([Task.of({"do": "eat"})], odd_tasks.odd, memory_limit=200e6).rows
    assert row["status"] == "memory"
    assert row["error"].endswith("MB in use, more than 200 MB, and was killed")
    assert 200 < row["peak_memory_mb"] < 3000  # it is looked at from time to time


def test_a_worker_that_cannot_start_ends_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odd_tasks.square, "__module__", "no_such_module")
    with pytest.raises(
        OptschedError,
        match=r"a worker ended with exit code 1 before its first task: ModuleNotFound",
    ):
        run_tasks(squares(2), odd_tasks.square)
    with pytest.raises(UsageError, match="is no function at the top of a module"):
        run_tasks(squares(2), lambda spec: spec)


def test_a_worker_that_returns_no_mapping_gives_an_error_row() -> None:
    rows = run_tasks(squares(2), odd_tasks.returns_nothing).rows
    told = "TypeError: 'NoneType' object is not iterable"
    assert [(row["status"], row["error"]) for row in rows] == [("error", told)] * 2


@pytest.mark.parametrize("kills", [1, 2, 5])
def test_workers_that_are_killed_before_a_task_stop_no_sweep(
    monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    """As where memory is short: a task gets three workers, then its row says so, and the sweep goes on."""
    left = [kills]

    class Killed(Child):
        def __init__(self, purpose: str, address: str, *given: Any, **more: Any) -> None:
            # It ends itself: a signal from here may come after its first words.
            if left[0]:
                left[0] -= 1
                address = "odd_tasks:killed"
            super().__init__(purpose, address, *given, **more)

    monkeypatch.setattr("optsched.executors.local_processes.Child", Killed)
    rows = run_tasks(squares(3), odd_tasks.square).rows
    failed = [row for row in rows if row["status"] == "error"]
    assert [row["square"] for row in rows if row not in failed] == [0, 1, 4][len(failed) :]
    assert len(failed) == kills // 3
    told = "its process was ended by SIGKILL before it could begin, 3 times in a row"
    assert all(row["error"].startswith(told) and row["exit_code"] == 7 for row in failed)


@pytest.mark.parametrize(
    ("whom", "number", "kills", "told"),
    [
        ("task", signal.SIGKILL, 2, None),
        ("task", signal.SIGTERM, 3, "its process was ended by SIGTERM, 3 times in a row"),
        ("worker", signal.SIGKILL, 2, None),
        ("worker", signal.SIGKILL, 3, "its process was ended by SIGKILL, 3 times in a row"),
    ],
)
def test_a_task_that_is_killed_is_done_again_twice_at_most(
    tmp_path: Path, whom: str, number: int, kills: int, told: str | None
) -> None:
    path, times = tmp_path / "results.jsonl", tmp_path / "times"
    times.write_text(str(kills))
    content = {"times": str(times), "whom": whom, "signal": int(number)}
    tasks = [Task.of({"x": x, **content}) for x in range(3)]
    first, *rest = run_tasks(tasks, odd_tasks.lose, results_file=path).rows
    assert times.read_text() == "0"
    assert (first["status"], first["error"]) == (("ok", None) if told is None else ("error", told))
    assert [row["x"] for row in rest] == [1, 2]
    written = parse_lines(path.read_bytes(), path).rows
    assert len(written) == 3  # none is doubled


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"processes": 0}, "processes: found 0, expected a number from 1 to 1024"),
        ({"threads": 0}, "threads: found 0, expected 1 or more"),
        ({"time_limit": 0.0}, "time_limit: found 0, expected a number above 0"),
        ({"memory_limit": -1.0}, "memory_limit: found -1, expected a number above 0"),
    ],
)
def test_limits_that_make_no_sense(given: dict[str, Any], words: str) -> None:
    with refuses(words, UsageError):
        run_tasks(squares(1), odd_tasks.square, **given)


def test_a_warning_where_there_are_too_few_cores() -> None:
    sweep = run_tasks([], odd_tasks.square, processes=2, threads=cores())
    assert sweep.notices[0].startswith(
        f"2 processes x {cores()} threads are {2 * cores()}, on {cores()} cores"
    )
    assert run_tasks([], odd_tasks.square, processes=cores()).notices == ()


def test_0_threads_of_a_benchmark_are_all_cores() -> None:
    sweep = Benchmark(from_names(["@quickstart"]), threads=0).run(processes=2)
    assert f"2 processes x {cores()} threads" in sweep.notices[0]
    assert [row["status"] for row in sweep.rows] == ["optimal"]


# --- the results file ----------------------------------------------------------------------------------------------


def test_rows_are_kept_and_not_made_again(tmp_path: Path) -> None:
    path, log = tmp_path / "results.jsonl", str(tmp_path / "log")
    first = run_tasks(squares(4, log=log), odd_tasks.square, results_file=path, kind="squares")
    head, *lines = map(json.loads, path.read_text().splitlines())
    assert (head["kind"], head["tasks"], len(lines)) == ("squares", 4, 4)
    again = run_tasks(squares(4, log=log), odd_tasks.square, results_file=path, kind="squares")
    assert again.rows == first.rows and again.notices == (
        f"4 of 4 tasks have a row in {path}: they are not done again",
    )
    assert Counter(Path(log).read_text().split()) == dict.fromkeys("0123", 1)


def test_an_incomplete_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    whole = run_tasks(squares(3), odd_tasks.square, results_file=path)
    data = path.read_bytes()
    last = data.rfind(b"\n", 0, -1) + 1
    for size in (last + 10, len(data) - 1, len(HEAD) + 3):
        path.write_bytes(data[:size])
        sweep = run_tasks(squares(3), odd_tasks.square, results_file=path)
        torn = size - (data[:size].rfind(b"\n") + 1)
        assert sweep.notices[0] == f"{path}: dropped an incomplete last line ({torn} bytes)"
        assert table(sweep) == table(whole)
        assert len(parse_lines(path.read_bytes(), path).rows) == 3


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for content in (b'{"a": 1}\n', b"a,b\n1,2\n", b"something of mine"):
        path.write_bytes(content)
        with refuses(
            'results.jsonl: line 1: found ..., expected "format": "optsched-results/1"...'
        ):
            run_tasks(squares(1), odd_tasks.square, results_file=path)
        assert path.read_bytes() == content
    path.unlink()
    run_tasks(squares(3), odd_tasks.square, results_file=path)
    whole = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        run_tasks(squares(4), odd_tasks.square, results_file=path)
    told = f"{path} is of another sweep (3 of its rows are of tasks of this one)"
    assert str(caught.value).startswith(f"{told}: give another file, or --append")
    assert path.read_bytes() == whole
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"{broken\n", *lines[2:]]))
    with refuses("results.jsonl: line 3: found '{broken', expected a row..."):
        run_tasks(squares(3), odd_tasks.square, results_file=path)
    with refuses("r.jsonl: found No such file or directory", UsageError):
        run_tasks(squares(1), odd_tasks.square, results_file=tmp_path / "nowhere" / "r.jsonl")


def test_a_sweep_can_be_added_to_a_file(tmp_path: Path) -> None:
    path, log = tmp_path / "results.jsonl", str(tmp_path / "log")
    run_tasks(squares(3, log=log), odd_tasks.square, results_file=path)
    larger = run_tasks(squares(5, log=log), odd_tasks.square, results_file=path, append=True)
    assert [row["square"] for row in larger.rows] == [0, 1, 4, 9, 16]
    assert Path(log).read_text().split() == list("01234")
    for count in (3, 5):  # both are sweeps of this file now
        assert (
            len(run_tasks(squares(count, log=log), odd_tasks.square, results_file=path).rows)
            == count
        )


def test_retry_does_again_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    tasks = [Task.of({"do": "crash"}), Task.of({"do": "print"})]
    run_tasks(tasks, odd_tasks.odd, results_file=path)
    assert run_tasks(tasks, odd_tasks.odd, results_file=path).rows[0]["status"] == "error"
    heard: list[str] = []
    run_tasks(
        tasks,
        odd_tasks.odd,
        results_file=path,
        retry=True,
        on_row=lambda row, _: heard.append(row["status"]),
    )
    assert heard == ["error"]
    assert len(path.read_text().splitlines()) == 4


def test_retry_under_other_limits_does_again_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"

    def sweep(limit: float, **more: Any) -> Sweep:
        tasks = [
            Task.of({"do": do, "memory_limit": limit}, {"limit": limit})
            for do in ("crash", "print", "large")
        ]
        return run_tasks(tasks, odd_tasks.odd, results_file=path, **more)

    sweep(1.0)
    with pytest.raises(UsageError, match="is of this sweep with other limits: give --retry"):
        sweep(2.0)
    heard: list[float] = []
    found = sweep(2.0, retry=True, on_row=lambda row, _: heard.append(row["limit"]))
    assert heard == [2.0]  # the others keep the rows of the first limit, and say so
    assert [(row["limit"], row["status"]) for row in found.rows] == [
        (2.0, "error"),
        (1.0, "ok"),
        (1.0, "ok"),
    ]
    # Without --retry the same command goes on from there, and nothing is left to do.
    assert sweep(2.0, on_row=lambda row, _: heard.append(row["limit"])).rows == found.rows
    assert heard == [2.0]
    read = {row["key"]: row for row in parse_lines(path.read_bytes(), path).latest}
    assert read == {row["key"]: row for row in found.rows}  # what failed before is replaced
    assert len(path.read_text().splitlines()) == 2 + 3 + 1


def test_two_runners_cannot_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile.open(path, squares(2), {}), pytest.raises(UsageError) as caught:
        run_tasks(squares(2), odd_tasks.square, results_file=path)
    assert str(caught.value) == f"{path} is in use: another run writes to it"
    assert len(run_tasks(squares(2), odd_tasks.square, results_file=path).rows) == 2


def test_a_file_of_another_machine_says_so(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    run_tasks(squares(1), odd_tasks.square, results_file=path)
    path.write_text(path.read_text().replace(f'"cores": {cores()}', '"cores": 999', 1))
    (notice, _) = run_tasks(squares(1), odd_tasks.square, results_file=path).notices
    assert notice == f"{path} was begun elsewhere or otherwise: cores 999, now {cores()}"


# --- ended from outside --------------------------------------------------------------------------------------------

RUNNER = """
import sys
from test_run import odd_tasks, run_tasks, squares
run_tasks(squares(12, sleep=0.05), odd_tasks.square, processes=2, results_file=sys.argv[1])
"""


def runner(path: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(path)], env=environment, stderr=subprocess.PIPE
    )


def killed_and_resumed(path: Path, moments: list[float]) -> tuple[int, list[dict[str, Any]]]:
    """Kill a runner so many seconds after it has begun, again and again, then let it end; the sizes it was cut at."""
    cut = 0
    for moment in moments:
        process = runner(path)
        before = path.stat().st_size if path.exists() else 0
        until = time.monotonic() + 20
        while time.monotonic() < until and (path.stat().st_size if path.exists() else 0) <= before:
            time.sleep(0.005)
        time.sleep(moment)
        cut += process.poll() is None
        process.kill()
        process.communicate()
    process = runner(path)
    assert process.communicate()[1] == b"" and process.returncode == 0
    return cut, table(run_tasks(squares(12, sleep=0.05), odd_tasks.square, results_file=path))


def test_killed_and_resumed_it_gives_the_same_table(tmp_path: Path) -> None:
    whole = table(run_tasks(squares(12, sleep=0.05), odd_tasks.square, processes=2))
    chance = random.Random(7)
    cut, resumed = killed_and_resumed(
        tmp_path / "results.jsonl", [chance.uniform(0, 0.15) for _ in range(1)]
    )
    assert cut >= 1 and resumed == whole


def test_ctrl_c_keeps_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"

    def stop(row: Any, progress: SweepProgress) -> None:
        if progress.done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    sweep = run_tasks(squares(8, sleep=0.02), odd_tasks.square, results_file=path, on_row=stop)
    assert sweep.interrupted and len(sweep.rows) == 3
    rest = run_tasks(squares(8, sleep=0.02), odd_tasks.square, results_file=path)
    assert not rest.interrupted and [row["square"] for row in rest.rows] == [
        x * x for x in range(8)
    ]


def test_a_row_that_names_a_key_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_lines(HEAD + b'}\n{"key": 1, "key": 2}\n', tmp_path / "rows.jsonl")
    assert caught.value.path == "line 2"
