"""A scheduler that lives long does not grow."""

from __future__ import annotations

import gc
import logging
import tracemalloc

import pytest
from storm_world import document

from optsched.instance import Instance
from optsched.rounds import Scheduler

pytestmark = pytest.mark.process


def churn(scheduler: Scheduler, first: int, rounds: int) -> None:
    """Jobs with names, rates, options and workloads of their own come and go."""
    for n in range(first, first + rounds):
        now = 60.0 * n
        own = {
            "id": f"own{n}",
            "steps": 1e6,
            "throughput": {"v100": 1.0 + n / 7, "k80": 1.0 + n / 11},
        }
        label = {
            "id": f"label{n}",
            "steps": 1e6,
            "workload": f"w{n}",
            "throughput": {"v100": 1.0 + n / 3},
        }
        options = [{"pool": "v100", "gpus": 1, "throughput": 1.0 + n / 5, "uses": {"cpu": 1.0}}]
        scheduler.submit(
            [own, label, {"id": f"option{n}", "steps": 1e6, "options": options}], now=now
        )
        if n >= 4:
            scheduler.complete(f"own{n - 4}", f"label{n - 4}", f"option{n - 4}", now=now)
        scheduler.observe(f"own{n}", throughput=1.0 + n / 7, now=now)
        assert scheduler.solve(now).fallback is None


def grown(rounds: int) -> tuple[float, float]:
    """Bytes that a scheduler holds after some churn, and after more of it."""
    scheduler = Scheduler(Instance.from_document(document()), clock=lambda: 0.0, isolate=False)
    churn(scheduler, 0, 20)
    tracemalloc.start()
    sizes = []
    for part in range(2):
        churn(scheduler, 20 + part * rounds, rounds)
        gc.collect()
        sizes.append(float(tracemalloc.get_traced_memory()[0]))
    tracemalloc.stop()
    state = scheduler.state
    assert len(state.instance.jobs_table) == len(state.ledger.carried) == 12
    assert (
        len(state.instance.rates) < 40
        and len(state.instance.workloads) < 20
        and len(state.ledger) < 60
    )
    return sizes[0], sizes[1]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What pytest keeps of the log is not the scheduler's."""
    caplog.set_level(logging.CRITICAL, "optsched")


@pytest.mark.study
def test_a_scheduler_does_not_grow() -> None:
    before, after = grown(25)
    assert after - before < 100_000


@pytest.mark.study
def test_a_scheduler_does_not_grow_in_two_thousand_rounds() -> None:
    before, after = grown(1000)
    assert after - before < 200_000
