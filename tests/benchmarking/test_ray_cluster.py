"""Sweeps on a Ray cluster of two nodes of this machine: the same rows as here, whatever is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import odd_tasks
import pytest

import optsched
from optsched.benchmarking import Sweep, SweepProgress, Task, run_tasks
from optsched.errors import (
    InvalidArgument,
    OptschedError,
    SolverCrashed,
    SolverUnavailable,
    UsageError,
)

# Private: a test waits for less than a minute
from optsched.executors import running

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
TIMES = ("wall_s", "peak_memory_mb", "date")
SMALL = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    utils = pytest.importorskip("ray.cluster_utils", reason="the extra ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        # The nodes' workers import the tasks too
        patch.setenv("PYTHONPATH", str(HERE))
        both = utils.Cluster(
            initialize_head=True, head_node_args={**SMALL, "include_dashboard": False}
        )
        both.add_node(**SMALL)
        yield both
        both.shutdown()


def squares(count: int, **more: Any) -> list[Task]:
    return [Task.of({"x": x, **more}, {"name": f"square {x}"}) for x in range(count)]


def table(sweep: Sweep) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in sweep.rows]


def test_it_gives_the_rows_of_local_processes(cluster: Any) -> None:
    where = f"ray:{cluster.address}"
    ours = run_tasks(squares(6), odd_tasks.square, processes=2, executor=where)
    assert table(ours) == table(run_tasks(squares(6), odd_tasks.square))
    tasks = [Task.of({"do": what}) for what in ("raise", "crash", "exit", "print")]
    ours = run_tasks(tasks, odd_tasks.odd, processes=2, executor=where)
    assert table(ours) == table(run_tasks(tasks, odd_tasks.odd))


def test_limits_hold_on_the_nodes(cluster: Any) -> None:
    where = f"ray:{cluster.address}"
    [slow] = run_tasks(
        [Task.of({"do": "sleep"})], odd_tasks.odd, time_limit=1.2, executor=where
    ).rows
    assert (slow["status"], slow["error"]) == ("limit", "did not end within 1.2 s and was killed")
    [large] = run_tasks(
        [Task.of({"do": "eat"})], odd_tasks.odd, memory_limit=200e6, executor=where
    ).rows
    assert large["status"] == "memory"


@pytest.mark.parametrize(
    ("whom", "losses", "told"),
    [
        ("actor", 1, None),
        ("actor", 3, "its worker was lost ("),
        ("worker", 2, None),
        ("task", 3, "its process was ended by SIGKILL, "),
    ],
)
def test_a_task_whose_worker_is_lost_is_done_again(
    cluster: Any, tmp_path: Path, whom: str, losses: int, told: str | None
) -> None:
    times = tmp_path / "times"
    times.write_text(str(losses))
    tasks = [Task.of({"x": x, "times": str(times), "whom": whom}) for x in range(2)]
    lost, after = run_tasks(tasks, odd_tasks.lose, executor=f"ray:{cluster.address}").rows
    assert after["x"] == 1 and after["status"] == "ok"
    if told is None:
        assert lost["x"] == 0 and lost["status"] == "ok"
    else:
        assert lost["status"] == "error" and lost["exit_code"] == 7
        assert lost["error"].startswith(told) and lost["error"].endswith("3 times in a row")
        # The machine of a lost worker is not known: it is not the one that asked.
        assert (lost["cpu"] is None) == (whom == "actor")


def test_parts_do_not_wait_for_workers_that_there_is_no_room_for(cluster: Any) -> None:
    there = {"processes": 4, "executor": f"ray:{cluster.address}"}
    found = optsched.solve("@large", parts=4, **there)  # type: ignore[arg-type]
    assert found.objective == optsched.solve("@large", parts=4).objective


def test_a_cluster_that_has_no_room_ends_by_the_limit(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(running, "STARTING", 1.0)
    with ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR"):
        groups = [ray.util.placement_group([{"CPU": 1}]) for _ in range(2)]
        ray.get([group.ready() for group in groups])  # all cores are taken
        there = {"processes": 2, "executor": f"ray:{cluster.address}", "time_limit": 1.0}
        with pytest.raises(SolverCrashed, match="no worker found room within"):
            optsched.solve("@large", parts=4, **there)
        [row] = run_tasks(squares(1), odd_tasks.square, executor="ray", time_limit=1.0).rows
        assert (row["status"], row["error"]) == ("error", "no worker found room within 3 s")


def test_a_worker_that_freezes_costs_a_retry(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "STARTING", 10.0)
    times = tmp_path / "times"
    times.write_text("1")
    task = Task.of({"x": 5, "times": str(times), "whom": "actor", "signal": int(signal.SIGSTOP)})
    where = f"ray:{cluster.address}"
    [row] = run_tasks([task], odd_tasks.lose, executor=where, time_limit=2.0).rows
    assert (row["status"], row["x"], times.read_text()) == ("ok", 5, "0")


def test_what_no_worker_can_do_ends_the_sweep(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"ray:{cluster.address}"
    with pytest.raises(UsageError, match="no machine of the Ray cluster has more cores"):
        run_tasks(squares(1), odd_tasks.square, threads=2, executor=where)
    monkeypatch.setattr(odd_tasks.square, "__module__", "no_such_module")
    with pytest.raises(OptschedError, match="a worker ended with exit code 1 before its first"):
        run_tasks(squares(2), odd_tasks.square, executor=where)


def test_a_driver_that_is_killed_goes_on_from_its_file(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    script = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import odd_tasks
from test_ray_cluster import squares
from optsched.benchmarking import run_tasks
run_tasks(squares(8, sleep=0.3), odd_tasks.square, executor="ray:{cluster.address}",
          processes=2, results_file={str(file)!r})
"""
    driver = subprocess.Popen([sys.executable, "-c", script])
    end = time.monotonic() + 120
    while time.monotonic() < end and not (
        file.exists() and len(file.read_bytes().splitlines()) > 2
    ):
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    done = len(file.read_bytes().splitlines()) - 1
    sweep = run_tasks(
        squares(8, sleep=0.3),
        odd_tasks.square,
        executor=f"ray:{cluster.address}",
        processes=2,
        results_file=file,
    )
    assert done >= 1 and f"{done} of 8 tasks have a row" in sweep.notices[0]
    assert table(sweep) == table(run_tasks(squares(8, sleep=0.3), odd_tasks.square))


def test_a_lost_node_costs_no_row(cluster: Any) -> None:
    node = cluster.add_node(**SMALL)
    gone = []

    def lose_node(row: Any, progress: SweepProgress) -> None:
        if not gone:
            gone.append(cluster.remove_node(node, allow_graceful=False))

    tasks = squares(9, sleep=0.5)
    ours = run_tasks(
        tasks, odd_tasks.square, processes=3, executor=f"ray:{cluster.address}", on_row=lose_node
    )
    assert gone and table(ours) == table(run_tasks(tasks, odd_tasks.square, processes=3))


def test_an_executor_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="executor: found 'slurm', expected processes, ray"):
        run_tasks(squares(1), odd_tasks.square, executor="slurm")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SolverUnavailable, match="the package ray cannot be loaded"):
        run_tasks(squares(1), odd_tasks.square, executor="ray")


def test_an_address_where_nothing_listens_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    for executor in ("ray", "ray:127.0.0.1:1"):
        with pytest.raises(SolverUnavailable, match=r"no cluster answers .*refused"):
            run_tasks(squares(1), odd_tasks.square, executor=executor)


def test_nothing_else_loads_ray() -> None:
    code = """
import importlib, pkgutil, sys
import optsched, optsched.cli, optsched.executors
from optsched.cli.main import main
for package in (optsched.cli, optsched.executors):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
assert main(["compare", "@quickstart", "-f", "makespan", "-f", "isolated", "--jobs", "2", "-q"]) == 0
sys.exit("ray" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0
