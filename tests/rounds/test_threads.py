"""Several threads that call one scheduler: nothing is lost, and its journal is whole."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optsched
from optsched.rounds import Scheduler

THREADS, JOBS = 4, 12


def empty_cluster() -> optsched.Instance:
    builder = optsched.InstanceBuilder(round="6m")
    builder.add_pool("v100", nodes=2, gpus_per_node=4)
    return builder.instance()


def test_threads_submit_while_rounds_are_planned(tmp_path: Path) -> None:
    """Without one call at a time, the journal refuses what another thread has written to it."""

    def submit(thread: int) -> None:
        for number in range(JOBS):
            job = {"id": f"{thread}-{number}", "steps": 1e5, "gpus": 1, "throughput": {"v100": 2.0}}
            scheduler.submit(job)

    with Scheduler(
        empty_cluster(),
        {"formulation": "max-min-fairness"},
        journal=tmp_path / "journal",
        fsync=False,
        isolate=False,
    ) as scheduler:
        with ThreadPoolExecutor(THREADS + 1) as pool:
            calls = [pool.submit(submit, thread) for thread in range(THREADS)]
            calls.append(pool.submit(lambda: [scheduler.solve() for _ in range(3)]))
            for call in calls:
                call.result()
        jobs = {job.id for job in scheduler.state.instance.jobs}
        digest = scheduler.solve().id
    assert jobs == {f"{thread}-{number}" for thread in range(THREADS) for number in range(JOBS)}
    with Scheduler.recover(tmp_path / "journal", isolate=False) as again:
        assert {job.id for job in again.state.instance.jobs} == jobs
        assert again.plan is not None and again.plan.id == digest
