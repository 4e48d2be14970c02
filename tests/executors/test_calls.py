"""Calls on executors: the same results in this process, in others, and on a Ray cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from odd_calls import (
    Deadly,
    Unreadable,
    added,
    killed,
    left_after_a_kill,
    odd_refused,
    raised,
    sleeps,
    with_shared,
    worker,
)

from optsched.errors import InvalidInput, OptschedError, SolverCrashed, UsageError
from optsched.executors import Calls, in_order, results_of
from optsched.instance.durations import Timer
from optsched.study import compare

pytestmark = pytest.mark.process

WAYS = [{"processes": 1}, {"processes": 2}]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers find the module of the calls."""
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    yield


@pytest.mark.parametrize("how", WAYS)
def test_results_have_the_number_of_their_item(how: dict[str, int]) -> None:
    begun: list[int] = []
    found = dict(results_of(added, ([1, 2],), [10, 20, 30], on_begin=begun.append, **how))
    assert found == {0: 13, 1: 23, 2: 33}
    assert sorted(begun) == [0, 1, 2]


@pytest.mark.parametrize("how", WAYS)
def test_what_is_shared_does_not_come_back(how: dict[str, int]) -> None:
    large = list(range(100_000))
    for number, (shared, item) in results_of(with_shared, (large,), [5, 6], **how):
        assert shared is large and item == 5 + number


@pytest.mark.parametrize("executor", ["processes", "ray"])
def test_workers_may_write_to_their_copies_of_what_is_shared(executor: str) -> None:
    if executor == "ray":
        pytest.importorskip("ray", reason="the extra ray is not installed")
    shared = np.zeros(100_000)
    assert dict(results_of(raised, (shared,), [3, 4], processes=2, executor=executor)) == {
        0: 1,
        1: 1,
    }
    assert not shared.any()


@pytest.mark.parametrize("how", WAYS)
def test_a_refusal_is_the_result_of_its_call(how: dict[str, int]) -> None:
    found = dict(results_of(odd_refused, (), [0, 1, 2], **how))
    assert found[0] == 0 and found[2] == 2
    refused = found[1]
    assert isinstance(refused, InvalidInput) and refused.path == "items[1]"
    assert str(refused) == "items[1]: found an odd number, expected an even one"


def test_processes_are_kept_from_one_lot_to_the_next() -> None:
    large = list(range(1000))
    calls: Calls[tuple[int, object]] = Calls(worker, (large,), processes=2)
    with closing(calls):
        lots = [in_order(calls.results_of([1, 2, 3])) for _ in range(2)]
    first, again = ({pid for pid, _ in lot} for lot in lots)
    assert again <= first and os.getpid() not in first
    assert all(shared is large for lot in lots for _, shared in lot)


def test_a_larger_lot_has_more_processes_than_the_first_one() -> None:
    calls: Calls[tuple[int, object]] = Calls(worker, ([],), processes=2)
    with closing(calls):
        lots = [in_order(calls.results_of(range(items))) for items in (1, 2)]
    first, second = ({pid for pid, _ in lot} for lot in lots)
    assert len(first) == 1 and len(second) == 2 and first < second


@pytest.mark.parametrize("how", WAYS)
def test_items_that_are_shared_are_those_of_the_caller(how: dict[str, int]) -> None:
    part = [1, 2]
    [(_, (shared, item))] = results_of(with_shared, (part,), [part], **how)
    assert shared is part and item is part


@pytest.mark.parametrize(
    ("number", "kills", "told"),
    [
        (signal.SIGKILL, 2, None),
        (signal.SIGTERM, 1, None),
        (signal.SIGKILL, 3, "its process was ended by SIGKILL, 3 times in a row"),
        # A process that crashes would do so again
        (signal.SIGSEGV, 1, "its process was ended by SIGSEGV"),
    ],
)
def test_a_call_whose_process_is_killed_is_done_again_twice_at_most(
    number: int, kills: int, told: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "kills"
    path.write_text(str(kills))
    shared = (str(path), int(number))
    found = dict(results_of(killed, shared, [7], processes=2))
    assert path.read_text() == "0"
    if told is None:
        assert found == {0: 7}
    else:
        assert isinstance(found[0], SolverCrashed) and str(found[0]) == told
    assert dict(results_of(killed, shared, [7, 8], processes=2)) == {0: 7, 1: 8}


def test_a_call_that_is_made_again_has_what_is_left_of_the_time_then(tmp_path: Path) -> None:
    shared = (str(tmp_path / "marker"),)
    [(_, left)] = results_of(left_after_a_kill, shared, [Timer.after(1000.0)], processes=2)
    assert isinstance(left, float) and 0 < left <= 999.5


def test_a_comparison_goes_on_after_a_process_that_crashed(tmp_path: Path) -> None:
    deadly = Deadly(str(tmp_path / "marker"))
    rows = compare(
        "@quickstart", ["makespan", "max-min-fairness"], constraints=[deadly], processes=2
    )
    (dead,) = (row for row in rows if row.solution is None)
    (other,) = (row for row in rows if row.solution is not None)
    assert isinstance(dead.error, SolverCrashed) and "SIGSEGV" in str(dead.error)
    assert other.solution.status == "optimal"


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be"):
        list(results_of(added, (lambda: 0,), [1, 2], processes=2))


@pytest.mark.parametrize("executor", ["processes", "ray"])
def test_what_workers_cannot_read_ends_the_calls(executor: str) -> None:
    if executor == "ray":
        pytest.importorskip("ray", reason="the extra ray is not installed")
    with pytest.raises(OptschedError, match=r"worker .*ValueError: invalid literal for int"):
        list(results_of(added, (Unreadable(),), [1], processes=2, executor=executor))


def test_nothing_to_call_needs_no_process() -> None:
    assert list(results_of(added, ([],), [], processes=2)) == []


def test_wrong_executors_and_numbers_are_refused() -> None:
    for wrong in ({"executor": "cloud"}, {"processes": 0}):
        with pytest.raises(UsageError):
            list(results_of(added, ([],), [1], **wrong))  # type: ignore[arg-type]


def test_who_stops_early_leaves_no_process() -> None:
    found = results_of(sleeps, (), [0.0, 60.0], processes=2)
    number, _ = next(found)
    assert number == 0
    began = time.monotonic()
    found.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("executor", ["processes", "ray"])
def test_a_comparison_is_the_same_in_other_processes(executor: str) -> None:
    if executor == "ray":
        pytest.importorskip("ray", reason="the extra ray is not installed")
    names = ["makespan", "max-min-fairness", "gap", "fifo"]
    one = compare("@quickstart", names)
    many = compare("@quickstart", names, processes=2, executor=executor)
    seconds = [row.to_document() | {"seconds": None} for row in many]
    assert seconds == [row.to_document() | {"seconds": None} for row in one]
    candidates = [row.solution.candidates.instance for row in many if row.solution is not None]
    assert all(instance is many.instance for instance in candidates)
