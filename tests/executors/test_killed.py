"""Whatever runs in other processes has the same answer where two of them are killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import optsched
from optsched.benchmarking import Benchmark, from_names
from optsched.study import compare

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]
KILLS = 2
TIMES = ("seconds", "timings", "created", "wall_s", "peak_memory_mb", "date")


def workers() -> set[int]:
    """Processes that do tasks for this one."""
    found = set()
    for thread in Path("/proc/self/task").iterdir():
        for child in (thread / "children").read_text().split():
            try:
                words = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue
            if b"optsched.executors.worker" in words:
                found.add(int(child))
    return found


@contextmanager
def killed() -> Iterator[list[int]]:
    """Kill the first workers that start; yields their numbers."""
    done, gone = threading.Event(), list[int]()

    def kill() -> None:
        while not done.wait(0.05) and len(gone) < KILLS:
            for worker in (workers() - set(gone)) if not done.wait(0.2) else ():
                if len(gone) < KILLS:
                    gone.append(worker)
                    os.kill(worker, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield gone
    finally:
        done.set()
        thread.join()


def plain(document: Any) -> str:
    """A document as text, without what took how long."""
    if isinstance(document, list):
        return "\n".join(map(plain, document))
    return json.dumps(
        {k: v for k, v in dict(document).items() if not k.endswith("_s") and k not in TIMES}
    )


def compared(processes: int) -> str:
    rows = compare("@quickstart", ["makespan", "max-min-fairness", "fifo"], processes=processes)
    return plain([row.to_document() for row in rows])


def solved_in_parts(processes: int) -> str:
    return plain(optsched.solve("@large", parts=4, processes=processes).to_document())


def front(processes: int) -> str:
    found = optsched.pareto(
        "@quickstart", ("max-min-fairness", "max-throughput"), points=6, processes=processes
    )
    # Each stretch of the front starts cold: the last digits may be others.
    return "\n".join(
        f"{first:.9g} {second:.9g}"
        for first, second in (point.objectives for point in found.points)
    )


def changes(processes: int) -> str:
    add = {"v100": 4, "p100": 4, "k80": 4}
    found = optsched.whatif(
        "@quickstart", "max-throughput", add=add, each=True, processes=processes
    )
    return repr([(change.label, change.solution.objective) for change in found.changes])


def benchmarked(processes: int) -> str:
    rows = (
        Benchmark(from_names(["@quickstart", "@packing"]), seeds=[0, 1])
        .run(processes=processes)
        .rows
    )
    return plain([dict(row) for row in rows])


@pytest.mark.parametrize("many", [compared, solved_in_parts, front, changes, benchmarked])
def test_the_answer_is_that_of_workers_that_live(many: Callable[[int], str]) -> None:
    expected = many(1)
    with killed() as gone:
        assert many(2) == expected
    assert len(gone) == KILLS
