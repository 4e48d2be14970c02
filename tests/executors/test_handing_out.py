"""Tasks handed to slots: who gets one when, and what becomes of those whose worker hangs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from optsched.benchmarking import Task

# Private: the seam that executors implement, and its constants
from optsched.benchmarking.run import SweepRows, row_of
from optsched.executors import running
from optsched.executors.machine import here
from optsched.executors.protocol import OK, RunningTask, SharedWork, Slot, TaskEnd
from optsched.executors.running import RETRIES, finished


class MadeUpSlot:
    """Ends each task at once, or never; can begin from some time on, or never."""

    def __init__(self, *, room: bool = True, hangs: int = 0) -> None:
        self.running: RunningTask | None = None
        self.room, self.hangs = room, hangs
        self.done: list[Any] = []
        self.stopped = 0

    def start(self) -> bool:
        return self.room

    def begin(self, content: Any) -> None:
        self.running = RunningTask()
        self.done.append(content)

    def look(self) -> TaskEnd | None:
        if self.hangs:
            return None
        self.running = None
        return TaskEnd(OK)

    def stop(self) -> None:
        self.stopped += 1
        self.hangs = max(self.hangs - 1, 0)
        self.running = None


class MadeUpExecutor:
    """Whose slots need not be waited for, and not for ever."""

    waits = 0

    def slots(self, work: SharedWork, count: int) -> Sequence[Slot]:
        raise AssertionError("the tests make them")

    def wait(self, slots: Sequence[Slot], seconds: float) -> None:
        self.waits += 1
        assert self.waits < 1000, "it waits for ever"

    def close(self) -> None:
        """Nothing was started."""


def clock(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """Let each look at the clock be so many seconds after the one before.

    The first one is now: that a task began is read from the clock of the machine.
    """
    now, looks = time.monotonic(), count()
    monkeypatch.setattr(time, "monotonic", lambda: now + step * next(looks))


def ends(slots: Sequence[Slot], tasks: int, **how: Any) -> dict[int, TaskEnd]:
    return dict(finished(MadeUpExecutor(), slots, tasks, lambda number: number, **how))


@pytest.mark.parametrize("keep", [False, True])
def test_no_task_waits_for_a_worker_that_there_is_no_room_for(keep: bool) -> None:
    waits, works = MadeUpSlot(room=False), MadeUpSlot()
    assert sorted(ends([waits, works], 3, keep=keep)) == [0, 1, 2]
    assert (waits.done, works.done) == ([], [0, 1, 2])


def test_what_is_sent_is_made_when_a_task_begins() -> None:
    made: list[int] = []

    def content_of(number: int) -> int:
        made.append(number)
        return number

    slot = MadeUpSlot()
    for number, _ in finished(MadeUpExecutor(), [slot], 3, content_of):
        assert made == slot.done == list(range(number + 1))


@pytest.mark.parametrize("hangs", [1, RETRIES, RETRIES + 1])
def test_a_task_whose_worker_hangs_is_done_again(
    hangs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, 10.0)
    slot = MadeUpSlot(hangs=hangs)
    end = ends([slot], 1, time_limit=30.0, keep=True)[0]
    assert slot.stopped == hangs
    if hangs <= RETRIES:
        assert end.status == OK
    else:
        words = "its worker did not answer within 120 s and was killed, 3 times in a row"
        assert (end.status, end.words) == ("error", words)


def test_without_a_limit_a_worker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = MadeUpSlot()
    slot.begin("a task")
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    assert running._lost_by_overrun(slot, running._most_seconds(None)) is None
    assert running._lost_by_overrun(slot, running._most_seconds(1e6)) is not None


def test_tasks_that_no_worker_finds_room_for_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 10.0)
    found = ends([MadeUpSlot(room=False)] * 2, 3, time_limit=30.0)
    words = "no worker found room within 120 s"
    assert [(found[number].status, found[number].words) for number in range(3)] == [
        ("error", words)
    ] * 3


def test_what_ended_is_kept_where_there_is_no_room_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock(monkeypatch, 10.0)
    slot = MadeUpSlot()
    found = {}
    for number, end in finished(MadeUpExecutor(), [slot], 2, int, time_limit=30.0):
        found[number] = end.status
        slot.room = False
    assert found == {0: OK, 1: "error"}


def test_a_sweep_has_rows_of_tasks_that_no_worker_found_room_for() -> None:
    task = Task.of({"x": 1})
    rows = SweepRows([task], None, None)
    rows.add(task, row_of(task, TaskEnd("error", words="no worker found room within 120 s")))
    [row] = rows.in_order()
    assert (row["status"], row["error"]) == ("error", "no worker found room within 120 s")
    # It ran nowhere, or on a machine that was lost: not on this one.
    assert [row[name] for name in here()] == [None] * len(here())
