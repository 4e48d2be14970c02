"""Tasks handed to slots: who gets one when, and what becomes of those whose worker hangs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

# Private: the seam that executors implement, and its constants
from optsched.executors import running
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
    """Whose slots need not be waited for."""

    def slots(self, work: SharedWork, count: int) -> Sequence[Slot]:
        raise AssertionError("the tests make them")

    def wait(self, slots: Sequence[Slot], seconds: float) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        """Nothing was started."""


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
    now = 0.0

    def later() -> float:
        nonlocal now
        now += 10.0
        return now

    monkeypatch.setattr(time, "monotonic", later)
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
    assert running._lost_by_overrun(slot, None) is None
    assert running._lost_by_overrun(slot, 1e6) is not None
