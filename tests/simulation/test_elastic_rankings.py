"""How many GPUs elastic jobs take under a ranking, by hand; what is remembered between plans changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from optsched.ranking import Ranking

# Private names: single rules and figures, without a whole simulation
from optsched.rounds import memory, ranked
from optsched.rounds import policy as policies
from optsched.simulation import Simulation, simulate
from optsched.traces import Trace

pytestmark = pytest.mark.property

Make = Callable[..., Trace]
SHAPES = {
    "peaks": {"1": 1.0, "2": 3.0, "4": 2.0},
    "grows": {"1": 1.0, "2": 2.0, "4": 4.0},
    "slows": {"1": 1.0, "2": 1.5, "4": 2.0},
}


def job(
    name: str, steps: float, shape: str, deadline: float, most: int = 4, **more: object
) -> dict[str, object]:
    levels = [level for level in (1, 2, 4) if level <= most]
    gpus = {"min": 1, "max": most, "levels": levels}
    return {
        "id": name,
        "steps": steps,
        "workload": shape,
        "gpus": gpus,
        "deadline": deadline,
        **more,
    }


def edf(
    make: Make, jobs: list[dict[str, object]], gpus: str, moves: str = "paying", **more: object
) -> Simulation:
    shapes = {name: {"throughput": {"p": rates}} for name, rates in SHAPES.items()}
    policy = {"ranking": "edf", "options": {"gpus": gpus, "moves": moves}}
    return simulate(make(jobs, {"p": 4}, workloads=shapes), policy, replan="events", **more)


@pytest.mark.parametrize(
    ("gpus", "finish", "held"),
    [
        ("least", [300.0, 300.0], [1, 1]),
        ("fastest", [100.0, 100.0], [2, 2]),
        ("most", [150.0, 300.0], [4, 4]),  # one after the other, and slower on four than on two
    ],
)
def test_how_many_gpus_elastic_jobs_take(
    make: Make, gpus: str, finish: list[float], held: list[int]
) -> None:
    result = edf(make, [job("a", 300.0, "peaks", 1000.0), job("b", 300.0, "peaks", 2000.0)], gpus)
    assert result.jobs.finish == pytest.approx(finish)
    assert result.segments.gpus.tolist() == held


@pytest.mark.parametrize("gpus", ["most", "fastest"])
def test_a_job_shrinks_for_one_before_it_and_grows_again(make: Make, gpus: str) -> None:
    """a: 50 s on four GPUs, 100 s on the two that b leaves, and the rest on four again."""
    jobs = [
        job("a", 800.0, "grows", 9000.0),
        job("b", 200.0, "grows", 1000.0, most=2, arrival=50.0),
    ]
    result = edf(make, jobs, gpus)
    mine = result.segments.job == 0
    assert result.segments.gpus[mine].tolist() == [4, 2, 4]
    assert result.jobs.finish == pytest.approx([250.0, 150.0])
    assert edf(make, jobs, gpus, restart_cost=10.0).jobs.finish[0] == pytest.approx(
        265.0
    )  # 10 s on two, 10 s on four


@pytest.mark.parametrize(
    ("shape", "deadline", "held", "end"),
    [
        ("slows", 300.0, 1, 300.0),
        ("slows", 299.0, 2, 200.0),
        ("slows", 199.0, 4, 150.0),
        ("slows", 149.0, 4, 150.0),  # too late: what ends first
        ("peaks", 300.0, 2, 100.0),  # less GPU time than on one
    ],
)
def test_a_job_takes_the_least_gpu_time_that_meets_its_deadline(
    make: Make, shape: str, deadline: float, held: int, end: float
) -> None:
    """Where nothing is filled up (``published``), and until the next plan."""
    jobs = [job("a", 300.0, shape, deadline)]
    result = edf(make, jobs, "deadline", "published", round=1e4)
    assert result.segments.gpus.tolist() == [held]
    assert result.jobs.finish == pytest.approx([end])


def test_idle_gpus_make_jobs_faster_until_another_one_needs_them(make: Make) -> None:
    """a could do with one GPU. b needs two to be in time, so a shrinks to the two that are left."""
    jobs = [
        job("a", 300.0, "slows", 1000.0),
        job("b", 150.0, "slows", 155.0, arrival=50.0),
    ]
    result = edf(make, jobs, "deadline")
    a = result.segments.job == 0
    assert result.segments.gpus[a].tolist() == [4, 2, 4]
    assert result.segments.gpus[~a].tolist() == [2]
    # 50 s at 2 steps/s, 100 s at 1.5, the last 50 steps at 2.
    assert result.jobs.finish == pytest.approx([175.0, 150.0])


@pytest.mark.parametrize(("cost", "held"), [(0.0, [4, 1]), (51.0, [4, 2])])
def test_the_restart_counts_for_the_deadline(make: Make, cost: float, held: list[int]) -> None:
    """At 50 s, b takes two GPUs. a has 200 steps left and 250 s: one GPU does, but not after a restart."""
    jobs = [
        job("a", 300.0, "slows", 300.0),
        job("b", 300.0, "slows", 251.0, arrival=50.0),
        job("c", 300.0, "slows", 9000.0, most=1, arrival=50.0),
    ]
    result = edf(make, jobs, "deadline", restart_cost=cost)
    assert result.segments.gpus[result.segments.job == 0].tolist()[:2] == held


def test_a_late_job_keeps_its_place_if_asked_to(make: Make) -> None:
    """a cannot be in time; b can, unless it waits for a."""
    jobs = [
        {"id": "a", "steps": 500.0, "throughput": {"p": 1.0}, "deadline": 100.0},
        {"id": "b", "steps": 100.0, "throughput": {"p": 1.0}, "deadline": 400.0},
    ]
    last, kept = (
        simulate(
            make(jobs), {"ranking": "edf", "options": {"late": late}}, replan="events"
        ).jobs.finish.tolist()
        for late in ("last", "kept")
    )
    assert (last, kept) == ([600.0, 200.0], [500.0, 600.0])


TWO_SPEEDS = [
    {"id": "a", "steps": 400.0, "throughput": {"fast": 4.0, "slow": 1.0}},
    {"id": "b", "steps": 400.0, "throughput": {"fast": 4.0, "slow": 1.0}, "arrival": 1.0},
]


@pytest.mark.parametrize("gpus", ["least", "most", "fastest"])
def test_a_gang_moves_to_the_faster_gpu_that_becomes_free(make: Make, gpus: str) -> None:
    """b runs at 1 step/s until the fast GPU becomes free at 100 s; published rankings leave it there."""

    def ends(moves: str) -> list[float]:
        policy = {"ranking": "fcfs", "options": {"gpus": gpus, "moves": moves}}
        return simulate(
            make(TWO_SPEEDS, {"fast": 1, "slow": 1}), policy, replan="events"
        ).jobs.finish.tolist()

    moved = [100.0, 100.0 + 301.0 / 4.0]
    assert ends("paying") == moved
    assert ends("published") == (moved if gpus == "fastest" else [100.0, 401.0])


@pytest.mark.parametrize("gpus", ["least", "fastest"])
@pytest.mark.parametrize(("cost", "end"), [(225.0, 100.0 + 225.0 + 301.0 / 4.0), (226.0, 401.0)])
def test_a_move_pays_for_its_restart(make: Make, gpus: str, cost: float, end: float) -> None:
    """At 100 s, 301 steps are left: 301 s on the slow GPU, 75.25 s on the fast one."""
    policy = {"ranking": "srtf", "options": {"gpus": gpus}}
    result = simulate(
        make(TWO_SPEEDS, {"fast": 1, "slow": 1}), policy, replan="events", restart_cost=cost
    )
    assert result.jobs.finish[1] == pytest.approx(end)


def test_a_ranking_with_options_of_its_own_takes_the_least(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of packages do whose options are not of the class that has ``gpus``."""
    from optsched.formulation import ConstraintOptions

    class Plain(Ranking):
        name = "plain"
        Options = ConstraintOptions  # type: ignore[assignment]

        def keys(self, jobs: Any) -> tuple[np.ndarray, ...]:
            return (jobs.arrival,)

    monkeypatch.setattr(policies, "load_ranking", lambda name: Plain)
    trace = make(
        [job("a", 300.0, "peaks", 1000.0)],
        {"p": 4},
        workloads={"peaks": {"throughput": {"p": SHAPES["peaks"]}}},
    )
    assert simulate(trace, policies.RoundPolicy(ranking="fcfs")).jobs.finish.tolist() == [300.0]


# --- what is remembered ----------------------------------------------------------------------------------------------


def busy(make: Make) -> Trace:
    """Jobs of all shapes that come, go and are late, and a node that fails and comes back."""
    rng = np.random.default_rng(5)
    jobs = [
        job(
            f"j{row}", float(rng.integers(100, 1500)), str(rng.choice(list(SHAPES))),
            float(start + rng.integers(100, 3000)), arrival=float(start), weight=float(rng.integers(1, 4)),
        )
        for row, start in enumerate(np.cumsum(rng.integers(0, 250, 30)))
    ]  # fmt: skip
    shapes = {name: {"throughput": {"p": rates}} for name, rates in SHAPES.items()}
    events = [
        {"at": 900.0, "node": "p-1", "state": "down"},
        {"at": 2150.0, "node": "p-1", "state": "up"},
    ]
    return make(jobs, {"p": 4}, workloads=shapes, node_events=events)


@pytest.mark.parametrize(
    ("ranking", "options"),
    [
        ("edf", {"gpus": "most"}), ("tiresias", {"limits": [300.0, 900.0], "knob": 2.0}),
        pytest.param("srtf", {"gpus": "fastest"}, marks=pytest.mark.study),
        pytest.param("las", {}, marks=pytest.mark.study),
    ],
)  # fmt: skip
def test_remembered_rows_give_the_plans_of_rows_made_anew(
    make: Make, monkeypatch: pytest.MonkeyPatch, ranking: str, options: dict[str, object]
) -> None:
    trace, policy = busy(make), {"ranking": ranking, "options": options}
    compiled: list[int] = []
    real = memory.compile

    def counted(*given: Any) -> Any:
        compiled.append(1)
        return real(*given)

    monkeypatch.setattr(memory, "compile", counted)
    found = simulate(trace, policy, replan="events", restart_cost=20.0)
    often = len(compiled)
    monkeypatch.setattr(memory._Compiled, "holds", lambda *given: False)
    anew = simulate(trace, policy, replan="events", restart_cost=20.0)
    assert often < 0.8 * (
        len(compiled) - often
    )  # jobs come and go in many of these rounds, not in all
    assert found.jobs.finish.tolist() == anew.jobs.finish.tolist()
    assert found.segments.gpus.tolist() == anew.segments.gpus.tolist()
    assert (found.rounds.solved <= anew.rounds.solved).all()  # none where every job runs on


def test_rows_are_made_anew_where_a_side_constraint_may_change_with_time(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    real = ranked._unordered

    def counted(*given: Any) -> Any:
        made.append(1)
        return real(*given)

    monkeypatch.setattr(ranked, "_unordered", counted)
    free = simulate(busy(make), {"ranking": "edf"})
    assert 0 < len(made) < len(free.rounds)
    made.clear()
    everybody = [f"j{row}" for row in range(30)]
    pinned = {"kind": "pinned", "jobs": everybody, "pools": ["p"]}
    bound = simulate(busy(make), {"ranking": "edf", "constraints": [pinned]})
    assert len(made) == bound.rounds.solved.sum()
