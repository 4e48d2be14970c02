"""Round mode: what a scheduler plans, carried out on jobs whose ends can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched.assembly import compile_for
from optsched.errors import UsageError

# The rule that candidates hold is private: it is switched off to compare.
from optsched.rounds import memory
from optsched.rounds.memory import Memory, PlannedRound
from optsched.rounds.solve_round import solve_round
from optsched.simulation import Simulation, simulate
from optsched.solution import Values
from optsched.solvers import HighsSession, Limits
from optsched.traces import Trace

pytestmark = pytest.mark.property

Make = Callable[..., Trace]


def job(name: str, steps: float, rate: float = 1.0, **more: object) -> dict[str, object]:
    return {"id": name, "steps": steps, "throughput": {"p": rate}, **more}


def test_one_job_runs_from_arrival_to_end(make: Make) -> None:
    result = simulate(make([job("a", 250.0, 2.0, arrival=50.0)]))
    assert result.jobs.first_start.tolist() == [50.0]  # an idle scheduler wakes when a job comes
    assert result.jobs.finish.tolist() == [175.0]
    assert result.completion_times.tolist() == [125.0]
    assert result.rounds.start.tolist() == [50.0, 150.0]
    metrics = result.metrics()
    assert (metrics["mean_jct"], metrics["makespan"], metrics["completed"]) == (125.0, 125.0, 1)
    assert metrics["gpu_hours"] == pytest.approx(125.0 / 3600)


def test_one_by_one_with_and_without_plans_at_events(make: Make) -> None:
    """Three jobs of 150 s on one GPU, first come, first served."""
    trace = make([job("a", 150.0), job("b", 150.0), job("c", 150.0)])
    waits = simulate(trace, "fifo")
    assert waits.jobs.finish.tolist() == [
        150.0,
        350.0,
        550.0,
    ]  # the GPU is idle until the next round
    at_once = simulate(trace, "fifo", replan="events")
    assert at_once.jobs.finish.tolist() == [150.0, 300.0, 450.0]
    assert at_once.metrics()["utilisation"] == pytest.approx(1.0)
    assert waits.metrics()["utilisation"] == pytest.approx(450.0 / 550.0)


def test_allox_waits_for_the_faster_gpu(make: Make) -> None:
    """Both end on f, b after a: on s, which is idle, b would have to stay for 1000 s."""
    jobs = [{"id": name, "steps": 100.0, "throughput": {"f": 1.0, "s": 0.1}} for name in ("a", "b")]
    result = simulate(make(jobs, {"f": 1, "s": 1}), "allox")
    assert sorted(result.jobs.finish.tolist()) == [100.0, 200.0]
    free = {"formulation": "allox", "options": {"keep_running": False}}
    moved = simulate(make(jobs, {"f": 1, "s": 1}), free)
    # Nothing keeps b on s, so it begins there and goes on on f with 90 steps left.
    assert sorted(moved.jobs.finish.tolist()) == [100.0, 190.0]


def test_time_is_shared_as_the_allocation_says(make: Make) -> None:
    """Two equal jobs on one GPU take turns, and end within a few rounds of each other."""
    result = simulate(make([job("a", 2000.0), job("b", 2000.0)]), {"hysteresis": 0.5})
    first, second = sorted(result.jobs.finish.tolist())
    assert second == 4000.0
    assert first >= 3600.0
    assert result.jobs.held.tolist() == [2000.0, 2000.0]


@pytest.mark.parametrize("formulation", ["max-min-fairness", "water-filling", "makespan"])
def test_pools_that_count_the_same_share_a_job(make: Make, formulation: str) -> None:
    """An agnostic policy has many optima; a vertex of them leaves the job on one pool for ever."""
    jobs = [{"id": "a", "steps": 1000.0, "throughput": {"f": 1.0, "s": 0.1}}]
    options = {"agnostic": True} | ({"reference_pool": "f"} if formulation == "makespan" else {})
    plan = solve_round(
        make(jobs, {"f": 1, "s": 1}).instance, {"formulation": formulation, "options": options}
    )
    assert plan.solution is not None and plan.solution.allocation is not None
    assert plan.solution.allocation.rows.fraction == pytest.approx([0.5, 0.5], abs=1e-3)


@pytest.mark.parametrize("policy", ["proportional-fairness", {"ranking": "srtf"}])
@pytest.mark.parametrize(("cost", "starts"), [(60.0, [1, 2]), (500.0, [1, 1])])
def test_a_move_counts_the_restart_cost_of_the_simulation(
    make: Make, policy: Any, cost: float, starts: list[int]
) -> None:
    """The fast GPU is free after 100 s; on the slow one b has 400 s to go, there 100 s."""
    trace = make(
        [
            job("a", 400.0, throughput={"fast": 4.0}),
            job("b", 500.0, throughput={"fast": 4.0, "slow": 1.0}),
        ],
        {"fast": 1, "slow": 1},
    )
    assert simulate(trace, policy, restart_cost=cost).jobs.starts.tolist() == starts


def test_a_restart_costs_time_without_progress(make: Make) -> None:
    """Every start but the first costs 30 s; what is held is more than what the steps take."""
    trace = make([job("a", 1000.0, restart_cost=30.0), job("b", 1000.0, restart_cost=30.0)])
    result = simulate(trace, {"hysteresis": 0.0})
    starts = result.jobs.starts
    assert (starts > 2).all()
    assert result.jobs.held == pytest.approx(1000.0 + 30.0 * (starts - 1))
    assert simulate(trace, {"hysteresis": 0.0}, restart_cost=0.0).jobs.held == pytest.approx(1000.0)


def test_a_regime_changes_the_rate_in_the_middle_of_a_round(make: Make) -> None:
    """50 steps at 1 step/s, then 100 at 4, then 10 at 0.5: 50 + 25 + 20 s."""
    trace = make(
        [{"id": "a", "workload": "slow", "steps": 160.0}],
        workloads={
            name: {"throughput": {"p": rate}}
            for name, rate in (("slow", 1.0), ("fast", 4.0), ("last", 0.5))
        },
        regimes={"a": [{"after": 50.0, "workload": "fast"}, {"after": 150.0, "workload": "last"}]},
    )
    assert simulate(trace).jobs.finish.tolist() == [95.0]
    assert simulate(trace, mode="fluid").jobs.finish == pytest.approx([95.0])


def test_a_scheduler_is_told_of_regimes(make: Make) -> None:
    """Shortest first: after 100 steps, a has become so slow that b is shorter."""
    trace = make(
        [
            {"id": "a", "workload": "fast", "steps": 200.0},
            {"id": "b", "workload": "fast", "steps": 220.0},
        ],
        workloads={"fast": {"throughput": {"p": 1.0}}, "slow": {"throughput": {"p": 0.1}}},
        regimes={"a": [{"after": 100.0, "workload": "slow"}]},
    )
    result = simulate(trace, {"ranking": "srtf", "hysteresis": 0.0})
    assert result.jobs.finish[1] == 320.0
    assert result.jobs.finish[0] > result.jobs.finish[1]


def test_what_ran_on_a_node_that_fails_falls_back_to_its_checkpoint(make: Make) -> None:
    """The node fails at 130 s and is back at 200 s; checkpoints are each round, or every 20 s."""
    events = [
        {"at": 130.0, "node": "p-0", "state": "down"},
        {"at": 200.0, "node": "p-0", "state": "up"},
    ]
    trace = make([job("a", 300.0)], node_events=events)
    result = simulate(trace)
    assert result.jobs.lost.tolist() == [30.0]
    assert result.jobs.finish.tolist() == [400.0]  # 100 s, failed, and 200 s from 200 s on
    assert result.jobs.starts.tolist() == [2]
    often = simulate(trace, checkpoint=20.0)
    assert often.jobs.lost.tolist() == [pytest.approx(10.0)]
    assert often.jobs.finish == pytest.approx([380.0])
    assert simulate(trace, restart_cost=15.0).jobs.finish == pytest.approx([415.0])


def test_nodes_fail_by_seed_and_jobs_end_all_the_same(make: Make) -> None:
    trace = make([job(f"j{row}", 5000.0, arrival=10.0 * row) for row in range(6)], {"p": 4})
    first, same, other = (
        simulate(trace, failures=1.0, repair=0.1, seed=seed) for seed in (1, 1, 2)
    )
    assert first.completed.all()
    assert first.jobs.lost.sum() > 0
    assert (first.jobs.finish == same.jobs.finish).all()
    assert (first.jobs.finish != other.jobs.finish).any()
    assert first.metrics()["utilisation"] <= 1.0


def test_noise_is_a_factor_of_each_job(make: Make) -> None:
    trace = make([job(f"j{row}", 1000.0) for row in range(40)], {"p": 40})
    result = simulate(trace, noise=0.2, seed=3)
    factor = 1000.0 / result.jobs.finish
    assert np.log(factor).std() == pytest.approx(0.2, rel=0.35)


def test_a_learning_scheduler_is_told_true_rates(make: Make) -> None:
    """The scheduler believes that b is slow; told better, it lets b, which is short, go first."""
    trace = make([job("a", 3000.0, 1.0), job("b", 1000.0, 0.2)])
    policy = {"ranking": "srtf", "hysteresis": 0.0}
    learning = {"model": "online", "of": {"model": "table"}}
    blind = simulate(trace, policy)
    assert blind.jobs.finish[0] < blind.jobs.finish[1]
    assert simulate(trace, policy, performance=learning, observe=True).completed.all()


def test_a_failure_costs_the_same_whenever_plans_are_made(make: Make) -> None:
    """A job of 300 s, its node down from 90 s to 200 s, no checkpoint before; also where a round begins then."""
    for at, length in ((90.0, 60.0), (120.0, 60.0), (120.0, 1000.0)):
        events = [
            {"at": at, "node": "p-0", "state": "down"},
            {"at": 200.0, "node": "p-0", "state": "up"},
        ]
        trace = make([job("a", 300.0)], node_events=events)
        for replan in ("rounds", "events"):
            assert simulate(
                trace, round=length, replan=replan, checkpoint=5000.0
            ).jobs.lost.tolist() == [at]


def test_a_checkpoint_is_what_was_done_at_its_time(make: Make) -> None:
    """1 step/s for 10 s, then 10 steps/s; the checkpoint at 20 s is in the round before the failure at 35 s."""
    trace = make(
        [{"id": "a", "workload": "slow", "steps": 1000.0}],
        workloads={"slow": {"throughput": {"p": 1.0}}, "fast": {"throughput": {"p": 10.0}}},
        regimes={"a": [{"after": 10.0, "workload": "fast"}]},
        node_events=[{"at": 35.0, "node": "p-0", "state": "down"}],
    )
    assert simulate(trace, round=10.0, checkpoint=20.0, until=100.0).jobs.lost.tolist() == [
        pytest.approx(150.0)
    ]


def test_a_simulation_begins_with_what_is_done_and_runs(make: Make) -> None:
    begun = job(
        "a", 100.0, steps_done=90.0, running={"pool": "p", "gpus": ["p-0/0"]}, arrival=-500.0
    )
    result = simulate(make([begun, job("b", 50.0)]), "fifo", replan="events")
    assert result.jobs.finish.tolist() == [10.0, 60.0]
    assert result.jobs.starts.tolist() == [0, 1]
    for mode in ("fluid", "gavel"):
        assert simulate(make([begun]), mode=mode).jobs.finish == pytest.approx([10.0])


def test_shares_of_a_gpu_are_shares(make: Make) -> None:
    options = [{"pool": "p", "gpus": 1, "share": 0.25, "throughput": 1.0}]
    trace = make([{"id": f"j{row}", "steps": 100.0, "options": options} for row in range(4)])
    for mode in ("rounds", "fluid"):
        result = simulate(trace, mode=mode)
        assert result.jobs.finish == pytest.approx([100.0] * 4)
        assert result.jobs.gpu_seconds == pytest.approx([25.0] * 4)
        assert result.metrics()["utilisation"] == pytest.approx(1.0)


def test_a_node_that_is_down_for_good_does_not_come_back(make: Make) -> None:
    events = [{"at": 10.0, "node": "p-1", "state": "down"}]
    trace = make([job("a", 9000.0), job("b", 9000.0)], {"p": 2}, node_events=events)
    result = simulate(trace, failures=0.3, repair=0.05, checkpoint=50.0, seed=1)
    assert result.jobs.lost.sum() > 0
    assert set(result.segments.first_gpu[result.segments.start >= 100.0].tolist()) == {0}


def test_nodes_that_become_available_are_used_then(make: Make) -> None:
    """Two jobs of 300 s, one GPU at first and another from 150 s on."""
    nodes = [{"name": "a", "gpus": 1}, {"name": "b", "gpus": 1, "available_from": 150.0}]
    cluster = {"pools": [{"name": "p", "nodes": nodes}]}
    jobs = [job("x", 300.0), job("y", 300.0)]
    result = simulate(make(jobs, cluster=cluster), {"formulation": "isolated", "hysteresis": 10.0})
    assert result.jobs.first_start.tolist() == [0.0, 200.0]
    assert (
        simulate(make(jobs, cluster=cluster), "isolated", replan="events").jobs.first_start.max()
        == 150.0
    )
    assert simulate(make(jobs, cluster=cluster), mode="fluid").jobs.finish == pytest.approx(
        [375.0, 375.0]
    )
    alone = simulate(make([job("x", 50.0)], cluster={"pools": [{"name": "p", "nodes": nodes[1:]}]}))
    assert alone.jobs.finish.tolist() == [250.0]  # rounds begin at 0, 100, 200 s


def test_what_is_held_on_nodes_that_drain_counts(make: Make) -> None:
    """One job that cannot be preempted goes on where a node drains: what it holds is there."""
    events = [{"at": 150.0, "node": "p-0", "state": "drain"}]
    trace = make(
        [job("a", 500.0, preemptible=False), job("b", 500.0)], {"p": 2}, node_events=events
    )
    assert simulate(trace).metrics()["utilisation"] <= 1.0


@pytest.mark.parametrize("mode", ["rounds", "fluid", "gavel"])
def test_a_simulation_at_a_large_clock_ends(make: Make, mode: str) -> None:
    trace = make([job("a", 1e-9, arrival=1e12), job("b", 50.0, arrival=1e12)], {"p": 2})
    assert simulate(trace, mode=mode).completed[1]


def test_metrics_end_with_the_last_job(make: Make) -> None:
    wide = {"id": "wide", "steps": 10.0, "gpus": 4, "throughput": {"p": 1.0}}
    for trace in (make([job("a", 40.0)]), make([job("a", 40.0), wide])):
        for options in ({}, {"until": 2e4}):
            assert simulate(trace, **options).metrics()["utilisation"] == pytest.approx(1.0)


def test_a_job_waits_for_its_predecessors(make: Make) -> None:
    trace = make(
        [job("a", 150.0, arrival=40.0), job("b", 100.0, after=["a"], arrival=0.0)], {"p": 2}
    )
    result = simulate(trace)
    assert result.jobs.first_start.tolist() == [40.0, 240.0]
    assert simulate(trace, mode="fluid").jobs.finish == pytest.approx([190.0, 290.0])
    with pytest.raises(UsageError, match="neither predecessors nor explicit options"):
        simulate(trace, mode="gavel")


def test_two_that_share_a_gpu_run_at_the_rates_of_the_pair(make: Make) -> None:
    trace = make(
        [{"id": name, "workload": name, "steps": 80.0} for name in ("a", "b")],
        workloads={name: {"throughput": {"p": 1.0}} for name in ("a", "b")},
        colocation=[{"workloads": ["a", "b"], "pool": "p", "throughput": [0.8, 0.9]}],
    )
    result = simulate(trace)
    assert result.jobs.finish == pytest.approx([100.0, 80.0 / 0.9])
    alone = 100.0 - 80.0 / 0.9  # the GPU is whose partner has ended
    assert result.jobs.gpu_seconds == pytest.approx([40.0 / 0.9 + alone, 40.0 / 0.9])


def test_jobs_that_can_never_run_are_given_up_with_a_notice(make: Make) -> None:
    trace = make(
        [job("a", 100.0), {"id": "wide", "steps": 10.0, "gpus": 4, "throughput": {"p": 1.0}}]
    )
    result = simulate(trace)
    assert result.completed.tolist() == [True, False]
    assert "1 jobs wait, nothing runs and nothing lies ahead" in result.notices[0]
    assert result.metrics()["makespan"] is None
    assert result.metrics()["mean_jct"] == 100.0


def test_a_job_without_steps_is_complete_when_it_comes(make: Make) -> None:
    for mode in ("rounds", "fluid"):
        result = simulate(make([job("a", 0.0, arrival=30.0), job("b", 100.0)]), mode=mode)
        assert result.jobs.finish == pytest.approx([30.0, 100.0])


def test_the_time_is_limited_on_request(make: Make) -> None:
    for mode in ("rounds", "fluid"):
        result = simulate(make([job("a", 1000.0)]), mode=mode, until=250.0)
        assert not result.completed.any()
        assert result.jobs.steps_done.tolist() == [250.0]
        assert "ended 250 s after the beginning" in result.notices[0]


@pytest.mark.parametrize("mode", ["rounds", "gavel"])
def test_jobs_that_take_too_many_rounds_are_refused_before_the_first(make: Make, mode: str) -> None:
    trace = make([job("a", 100.0), job("b", 1e12)])
    with pytest.raises(
        UsageError, match=r"^job b takes 1e\+10 rounds of 100 s even at its highest"
    ):
        simulate(trace, mode=mode)
    assert simulate(trace, mode=mode, until=1000.0).completed.tolist() == [True, False]


def test_segments_say_who_held_what(make: Make) -> None:
    result = simulate(make([job("a", 250.0), job("b", 100.0)]), "fifo")
    segments = result.segments
    assert segments.job.tolist() == [0, 1]
    assert segments.start.tolist() == [0.0, 300.0]
    assert segments.end.tolist() == [250.0, 400.0]
    assert segments.first_gpu.tolist() == [0, 0]
    assert not len(simulate(make([job("a", 250.0)]), segments=False).segments)


def test_warm_up_and_cool_down_do_not_count(make: Make) -> None:
    trace = make([job(f"j{row}", 100.0 + row, arrival=float(row)) for row in range(10)], {"p": 10})
    result = simulate(trace, warm_up=0.2, cool_down=0.3)
    assert result.measured.tolist() == [False] * 2 + [True] * 5 + [False] * 3
    assert result.metrics()["jobs"] == 5


def same(one: Simulation, other: Simulation) -> bool:
    logs = zip(vars(one.jobs).values(), vars(other.jobs).values(), strict=True)
    parts = zip(vars(one.rounds).items(), vars(other.rounds).values(), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in logs) and all(
        name == "seconds" or np.array_equal(a, b) for (name, a), b in parts
    )


@pytest.mark.parametrize("policy", ["max-min-fairness", "finish-time-fairness", "srtf"])
def test_the_same_trace_and_seed_give_the_same(make: Make, policy: str) -> None:
    random = np.random.default_rng(0)
    jobs = [
        job(f"j{row}", float(random.integers(50, 900)), arrival=float(row * 60))
        for row in range(15)
    ]
    runs = [simulate(make(jobs, {"p": 3}), policy, noise=0.1, seed=5) for _ in range(2)]
    assert same(*runs)


def test_an_allocation_that_still_holds_is_not_solved_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule, whose allocations are the same to the last bit whenever they are made."""
    random = np.random.default_rng(1)
    jobs = [
        {"id": f"j{row}", "steps": float(random.integers(500, 9000)), "arrival": float(row * 170), "gpus": int(gpus),
         "throughput": {"p": float(random.uniform(1, 3)), "q": float(random.uniform(0.5, 2))}}
        for row, gpus in enumerate(random.choice([1, 2], 20))
    ]  # fmt: skip
    trace = make(jobs, {"p": 3, "q": 4})
    lasting = simulate(trace, "isolated")
    assert lasting.rounds.solved.sum() < len(lasting.rounds)
    monkeypatch.setattr(Memory, "_allocation_holds", lambda *_: False)
    again = simulate(trace, "isolated")
    assert again.rounds.solved.all()
    assert np.array_equal(lasting.jobs.finish, again.jobs.finish)


@pytest.mark.parametrize(
    ("policy", "part"),
    [
        ("max-min-fairness", 0.2),
        ("srtf", 0.2),
        ("fifo", 0.6),  # jobs wait, and have no claim
        ({"formulation": "fifo", "patience": 3}, 0.3),
    ],
)
def test_rounds_in_which_nothing_can_change_keep_their_plan(
    make: Make, monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any] | str, part: float
) -> None:
    """Jobs on GPUs of their own, at times more of them than GPUs: the same as with a plan every round."""
    random = np.random.default_rng(4)
    jobs = [
        job(f"j{row}", float(random.integers(900, 4000)), arrival=float(row * 700)) for row in range(12)
    ]  # fmt: skip
    events = [
        {"at": 2110.0, "node": "p-1", "state": "down"},
        {"at": 2600.0, "node": "p-1", "state": "up"},
    ]
    trace = make(jobs, {"p": 4}, node_events=events)
    quick = simulate(trace, policy, restart_cost=7.0)
    kept = []
    real = PlannedRound.plan_again
    monkeypatch.setattr(
        PlannedRound, "plan_again", lambda *given: kept.append(real(*given) is not None)
    )
    slow = simulate(trace, policy, restart_cost=7.0)
    assert sum(kept) > part * len(slow.rounds)
    assert np.array_equal(quick.jobs.finish, slow.jobs.finish)
    assert np.array_equal(quick.jobs.starts, slow.jobs.starts)
    assert np.array_equal(quick.rounds.busy, slow.rounds.busy)


@pytest.mark.parametrize("policy", ["makespan", "max-min-fairness"])
def test_candidates_hold_until_a_job_or_node_changes(
    make: Make, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """A makespan reads the steps left, so it is solved in every round, but not compiled: progress changes no column."""
    random = np.random.default_rng(5)
    jobs = [
        {
            "id": f"j{row}",
            "steps": float(random.integers(900, 4000)),
            "arrival": row * 700.0,
            "throughput": {"p": 1.0},
        }
        | (
            {"gpus": {"min": 1, "max": 2}, "throughput": {"p": {"1": 1.0, "2": 1.6}}}
            if row % 3 == 0
            else {}
        )
        for row in range(8)
    ]
    events = [
        {"at": 2110.0, "node": "p-1", "state": "down"},
        {"at": 2600.0, "node": "p-1", "state": "up"},
    ]
    trace = make(jobs, {"p": 4}, node_events=events)
    compiled = []

    def counted(*given: object) -> object:
        compiled.append(given)
        return compile_for(*given)

    monkeypatch.setattr(memory, "compile_for", counted)
    kept, few = simulate(trace, policy), len(compiled)
    assert 0 < few <= 2 * len(jobs) + len(events)
    monkeypatch.setattr(memory._Compiled, "holds", lambda *_: False)
    anew = simulate(trace, policy)
    assert len(compiled) - few == anew.rounds.solved.sum()
    assert policy != "makespan" or anew.rounds.solved.sum() == kept.rounds.solved.sum()
    assert policy != "makespan" or len(compiled) > 3 * few
    for part in ("jobs", "rounds"):
        for name, values in vars(getattr(kept, part)).items():
            if name not in ("seconds", "solved"):
                assert np.array_equal(values, getattr(getattr(anew, part), name)), (part, name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mode": "magic"},
            "options.mode: found \"magic\", expected one of 'rounds', 'fluid' or 'gavel'",
        ),
        ({"noise": -1.0}, "options.noise: found -1.0"),
        ({"warm_up": 2.0}, "options.warm_up"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    make: Make, options: dict[str, object], message: str
) -> None:
    with refuses(f"{message}..."):
        simulate(make([job("a", 1.0)]), **options)


def test_a_policy_that_takes_no_such_jobs_says_why_nothing_runs() -> None:
    result = optsched.simulate("@quickstart", "smd", until="2h")
    assert result.metrics()["fallbacks"] == result.metrics()["rounds"] == 20
    why = "20 rounds fell back, the first for this reason: smd: job"
    assert any(notice.startswith(why) for notice in result.notices)


def test_a_policy_that_there_is_not_is_refused(make: Make) -> None:
    with refuses("policy: found 'nonesuch'", UsageError):
        simulate(make([job("a", 1.0)]), "nonesuch")


@pytest.mark.parametrize(
    ("policy", "rounds", "runs"),
    [("max-min-fairness", 107, 12), ("srtf", 115, 0), ("fifo", 115, 0)],
)
def test_the_first_simulation_of_a_newcomer_is_little_work(
    monkeypatch: pytest.MonkeyPatch, policy: str, rounds: int, runs: int
) -> None:
    """Half a day of rounds; with a job that stays on a slow pool it would be four days, of which
    most are that job's, and a solver would run in each for an allocation that is known."""
    real, solved = HighsSession.run, []

    def counted(session: HighsSession, limits: Limits) -> Values:
        solved.append(session)
        return real(session, limits)

    monkeypatch.setattr(HighsSession, "run", counted)
    result = simulate("@quickstart", policy)
    assert (len(result.rounds.start), len(solved)) == (rounds, runs)
