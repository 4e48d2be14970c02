"""Rounds whose allocations are solved by prices: the next one starts from them, and states carry them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from programs import scattered
from refusals import refuses

import optsched
from optsched import solve_round
from optsched.errors import SolverUnavailable
from optsched.registry import load_solver
from optsched.rounds import RoundPolicy, RoundState, Scheduler, advanced, followed
from optsched.solvers import Limits
from optsched.solvers.isolated import SolverProcess

# Private names: single rules and files of a round, without a scheduler
from optsched.solvers.prices import solve_concave as back_end
from optsched.solvers.prices.pinned_total import PinnedTotal
from optsched.solving import Engine, choice

pytestmark = pytest.mark.property


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices for few jobs too."""
    for least in ("BY_PRICES_LEVEL", "BY_PRICES_TOTAL", "BY_PRICES_CONCAVE"):
        monkeypatch.setattr(choice, least, 0)
    monkeypatch.setattr(choice, "MOST_FROM_BASIS", 0)


def instance(jobs: int = 60, seed: int = 0) -> optsched.Instance:
    random = np.random.default_rng(seed)
    return optsched.Instance.from_arrays(
        pools={"a": 8, "b": 8}, throughput=random.lognormal(0.0, 0.5, (jobs, 2)), gpus=random.choice([1, 2], jobs),
        steps=np.full(jobs, 1e9),
    )  # fmt: skip


def test_the_next_round_starts_from_the_prices() -> None:
    state = RoundState.first(instance(), RoundPolicy())
    first = solve_round(state)
    assert first.fallback is None and first.started_from == "cold: there are no prices yet"
    assert first.warm is not None and first.warm.prices
    state = advanced(followed(state, first), state.until)
    second = solve_round(state)
    assert second.started_from == "prices of 2 of 2 resources known"
    assert second.solution is not None and first.solution is not None
    assert second.solution.solver.iterations < first.solution.solver.iterations
    assert second.solution.objective == pytest.approx(first.solution.objective, rel=1e-9)


def test_a_sum_of_utilities_starts_from_the_prices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(back_end, "PINNED_FROM_KNOWN", 0)
    state = RoundState.first(instance(200), RoundPolicy(formulation="proportional-fairness"))
    first = solve_round(state)
    assert first.warm is not None and first.warm.prices
    asked: list[np.ndarray | None] = []
    run = PinnedTotal.run
    monkeypatch.setattr(
        PinnedTotal, "run", lambda self, prices=None: asked.append(prices) or run(self, prices)
    )
    second = solve_round(advanced(followed(state, first), state.until))
    assert second.started_from == "prices of 2 of 2 resources known"
    assert len(asked) == 1 and asked[0] is not None and (asked[0] > 0).all()
    assert (
        second.solution is not None
        and first.solution is not None
        and second.solution.status == "optimal"
    )
    assert second.solution.objective == pytest.approx(first.solution.objective, abs=1e-6)


def test_states_carry_prices() -> None:
    state = RoundState.first(instance(), RoundPolicy())
    state = advanced(followed(state, solve_round(state)), state.until)
    again = RoundState.from_document(state.to_document())
    assert again.warm is not None and state.warm is not None
    assert again.warm.prices == state.warm.prices
    assert solve_round(again).to_document() | {"timings": 0} == solve_round(state).to_document() | {
        "timings": 0
    }


def test_a_price_that_is_none_is_refused() -> None:
    state = RoundState.first(instance(), RoundPolicy())
    state = advanced(followed(state, solve_round(state)), state.until)
    from dataclasses import replace

    assert state.warm is not None
    for wrong in (-1.0, float("nan"), 0.0):
        document = replace(state, warm=replace(state.warm, prices={"a": wrong})).to_document()
        with refuses("basis"):
            RoundState.from_document(document)


def test_a_journal_is_replayed_with_its_prices(tmp_path: Path) -> None:
    now = [0.0]
    with Scheduler(
        instance(), {}, clock=lambda: now[0], journal=tmp_path / "journal", isolate=False
    ) as scheduler:
        plans = []
        for _ in range(4):
            plans.append(scheduler.solve().to_document())
            scheduler.complete(scheduler.instance.jobs_table.names[0])
            now[0] += 360.0
    for number, plan in enumerate(plans):
        replayed = optsched.replay(tmp_path / "journal", number).plan.to_document()
        assert replayed | {"timings": 0} == plan | {"timings": 0}


def test_an_isolated_scheduler_plans_the_same_by_prices() -> None:
    plans = []
    for isolate in (True, False):
        with Scheduler(
            instance(), {"solver": "prices"}, clock=lambda: 0.0, isolate=isolate
        ) as scheduler:
            plan = scheduler.solve()
            assert plan.fallback is None and plan.solution is not None
            assert plan.solution.solver.name == "prices"
            plans.append(plan.to_document()["id"])
    assert plans[0] == plans[1]


@pytest.mark.parametrize("formulation", ["makespan", "proportional-fairness", "max-throughput"])
def test_a_policy_may_ask_for_prices(formulation: str) -> None:
    policy = {"solver": "prices", "formulation": formulation}
    with Scheduler(instance(), policy, clock=lambda: 0.0, isolate=False) as scheduler:
        plan = scheduler.solve()
    assert (
        plan.fallback is None
        and plan.solution is not None
        and plan.solution.solver.name == "prices"
    )


def test_a_policy_of_what_prices_cannot_is_refused_before_the_first_round() -> None:
    served = {
        "solver": "prices",
        "formulation": "proportional-fairness",
        "constraints": [{"kind": "minimum-service", "fraction": 0.1}],
    }
    with pytest.raises(
        SolverUnavailable,
        match="'minimum-service' do not only limit sums; auto takes a solver that can",
    ):
        Scheduler("@quickstart", served, isolate=False)
    with refuses("solver: found prices, expected one with integer", SolverUnavailable):
        Scheduler("@quickstart", {"solver": "prices", "formulation": "lease"}, isolate=False)


def test_prices_wait_for_no_process_that_they_do_not_use() -> None:
    with SolverProcess(load_solver) as process:
        engine = Engine(process.load, "prices", Limits(time=5.0))
        assert engine.solve_directly(scattered(40)).certificate.ok
        assert process.pid is None
