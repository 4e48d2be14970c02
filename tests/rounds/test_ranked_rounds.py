"""Rounds that follow a ranking: what is known of the rules as theorems, and who waits for whom, and why."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranked_cases import Document, Simulation, instance, job, planned, seen, simulated

from optsched import solve_round
from optsched.arrays import FloatArray
from optsched.errors import Interrupted
from optsched.ranking import RankedJobs, Ranking
from optsched.rounds import Plan, Reservation, RoundPolicy, RoundState, Verdict, advanced, followed
from optsched.rounds import policy as policies

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.order import Order

pytestmark = pytest.mark.property

FEW = settings(max_examples=12, deadline=None, derandomize=True)
RANKINGS: dict[str, dict[str, object]] = {
    "fcfs": {}, "priority": {}, "srtf": {}, "las": {}, "2d-las": {}, "edf": {}, "slack-first": {},
    "tiresias": {"limits": [2.0, 4.0], "knob": 2.0}, "gittins": {"sample": [1.0, 2.0, 5.0], "delta": 1.0},
}  # fmt: skip


def decisions(plan: Plan) -> dict[str, tuple[str, str]]:
    return {
        name: (decision.verdict.name.lower(), decision.reason)
        for name, decision in (
            (d.job, d) for d in (plan.decision(row) for row in range(len(plan.verdict)))
        )
    }


def running(plan: Plan) -> set[str]:
    names = plan.instance.jobs_table.names
    return {names[row] for row in plan.running}


# --- shortest remaining time ---------------------------------------------------------------------------------------


def least_total(arrival: tuple[int, ...], size: tuple[int, ...]) -> int:
    """Sum of the completion times at best, of all ways to give one GPU away second by second."""

    @cache
    def least(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        there = [row for row, rest in enumerate(left) if rest and arrival[row] <= now]
        if not there:
            return least(now + 1, left)
        return min(
            least(now + 1, (*left[:row], left[row] - 1, *left[row + 1 :]))
            + (now + 1) * (left[row] == 1)
            for row in there
        )

    return least(0, size)


@FEW
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), min_size=2, max_size=6))
def test_the_shortest_remaining_time_minimises_the_mean_completion_time_on_one_gpu(
    drawn: list[tuple[int, int]],
) -> None:
    jobs = [
        job(f"j{row}", float(size), arrival=float(arrival))
        for row, (arrival, size) in enumerate(drawn)
    ]
    done = simulated(jobs, "srtf").done
    assert sum(done.values()) == least_total(*zip(*drawn, strict=True))


def test_other_orders_are_worse() -> None:
    jobs = [job("a", 4.0), job("b", 1.0, arrival=1.0), job("c", 2.0, arrival=1.0)]
    totals = {
        name: sum(simulated(jobs, name, (1,), **RANKINGS[name]).done.values())
        for name in ("srtf", "fcfs", "las")
    }
    assert totals["srtf"] == least_total((0, 1, 1), (4, 1, 2)) == 13
    assert min(totals["fcfs"], totals["las"]) > 13


# --- earliest deadline ---------------------------------------------------------------------------------------------


@st.composite
def feasible(draw: st.DrawFn) -> list[Document]:
    """Jobs with the deadlines that some way to give one GPU away meets, not much later."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), min_size=2, max_size=6))
    left, now, end = [size for _, size in sizes], 0, [0] * len(sizes)
    while any(left):
        there = [row for row, rest in enumerate(left) if rest and sizes[row][0] <= now]
        now += 1
        if there:
            row = draw(st.sampled_from(there))
            left[row] -= 1
            end[row] = now
    slack = [draw(st.integers(0, 1)) for _ in sizes]
    return [
        job(
            f"j{row}", float(size), arrival=float(arrival), deadline=float(end[row] + slack[row]),
            deadline_kind=draw(st.sampled_from(["hard", "soft"])),
        )
        for row, (arrival, size) in enumerate(sizes)
    ]  # fmt: skip


@settings(FEW, max_examples=15)
@given(feasible())
def test_the_earliest_deadline_first_meets_all_deadlines_on_one_gpu_if_that_is_possible(
    jobs: list[Document],
) -> None:
    done = simulated(jobs, "edf").done
    assert all(done[one["id"]] <= one["deadline"] for one in jobs)


def test_in_the_order_of_arrival_they_are_missed() -> None:
    jobs = [job("a", 3.0, deadline=6.0), job("b", 1.0, arrival=1.0, deadline=2.0)]
    assert simulated(jobs, "fcfs").done["b"] == 4.0
    assert simulated(jobs, "edf").done == {"b": 2.0, "a": 4.0}


@pytest.mark.parametrize("m", [2, 3, 4])
def test_on_several_gpus_the_earliest_deadline_first_misses_what_another_order_meets(
    m: int,
) -> None:
    """m jobs of 2 e due at 1 and one of 1 due at 1 + e, with e = 1/8: a second is an eighth."""
    short = [job(f"short{row}", 2.0, deadline=8.0) for row in range(m)]
    jobs = [*short, job("long", 8.0, deadline=9.0, weight=2.0)]
    late = simulated(jobs, "edf", (m,)).done
    assert late["long"] == 10.0
    in_time = simulated(jobs, "priority", (m,)).done
    assert all(in_time[one["id"]] <= one["deadline"] for one in jobs)


def test_a_hard_deadline_that_has_passed_makes_way_and_a_soft_one_does_not() -> None:
    def jobs(kind: str) -> list[Document]:
        return [
            job("late", 9.0, arrival=-9.0, deadline=-1.0, deadline_kind=kind),
            job("due", 9.0, deadline=50.0),
        ]

    hard, soft = planned(jobs("hard"), "edf"), planned(jobs("soft"), "edf")
    assert running(hard) == {"due"}
    assert running(soft) == {"late"}
    assert running(planned([*jobs("hard")[:1], job("none", 9.0, arrival=-20.0)], "edf")) == {"late"}
    assert hard.notices == (
        "job late is late: its deadline was at -1 s, and it is held to it no more",
    )


# --- Tiresias ------------------------------------------------------------------------------------------------------


def by_hand(jobs: list[Document], limits: list[float], knob: float) -> Iterator[list[str]]:
    """Queues as lists, second by second, on one GPU; jobs of a queue in the order in which they arrived."""
    had = {one["id"]: 0 for one in jobs}
    total, waits, now = dict(had), dict(had), 0
    while any(total[one["id"]] < one["steps"] for one in jobs):
        there = [one for one in jobs if one["arrival"] <= now and total[one["id"]] < one["steps"]]
        queue = {}
        for one in there:
            name = one["id"]
            queue[name] = sum(had[name] >= limit for limit in limits)
            if queue[name] and waits[name] and waits[name] >= knob * had[name]:
                queue[name] = had[name] = 0
        ranked = sorted(there, key=lambda one: (queue[one["id"]], one["arrival"], jobs.index(one)))
        for one in there:
            runs = one is ranked[0]
            had[one["id"]] += runs
            total[one["id"]] += runs
            waits[one["id"]] = 0 if runs else waits[one["id"]] + 1
        now += 1
        yield [ranked[0]["id"]] if ranked else []


@FEW
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=2, max_size=5),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_queues_and_knob_go_as_by_hand(drawn: list[tuple[int, int]], knob: float) -> None:
    drawn = sorted(drawn)
    jobs = [
        job(f"j{row}", float(size), arrival=float(arrival))
        for row, (arrival, size) in enumerate(drawn)
    ]
    history = simulated(jobs, "tiresias", (1,), limits=[1.0, 3.0], knob=knob).history
    assert [list(names) for _, names in history] == list(by_hand(jobs, [1.0, 3.0], knob))


def test_a_demoted_job_waits_until_the_knob_returns_it() -> None:
    jobs = [job("old", 4.0), *(job(f"new{row}", 2.0, arrival=2.0 + 2 * row) for row in range(5))]
    plain = simulated(jobs, "tiresias", (1,), limits=[2.0]).done
    assert plain["old"] == 14.0  # all others are short enough for the first queue
    knob = simulated(jobs, "tiresias", (1,), limits=[2.0], knob=2.0).history
    runs = [now for now, names in knob if "old" in names]
    assert runs == [
        0.0,
        1.0,
        6.0,
        7.0,
    ]  # 2 s had, so after 4 s of waiting it is a new job, and the oldest one


def test_what_a_renewed_job_had_before_is_still_told() -> None:
    policy = RoundPolicy(ranking="tiresias", options={"limits": [2.0], "knob": 1.0})
    state = RoundState.first(instance([job("a", 99.0), job("b", 99.0)]), policy)
    for _ in range(5):
        plan = solve_round(state)
        state = advanced(followed(state, plan), state.now + 1.0)
    # a runs twice, b twice, and then a, which has waited for 2 s, is renewed
    assert plan.order is not None
    assert plan.order.renewed.tolist() == [True, False]
    assert state.service.executed.tolist() == [3.0, 2.0]
    assert (
        state.service.executed_before.tolist()
        == state.service.attained_before.tolist()
        == [2.0, 0.0]
    )


# --- who waits, and why --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranking", RANKINGS)
def test_a_job_that_cannot_be_preempted_stays_whatever_the_ranking(ranking: str) -> None:
    stays = job(
        "stays",
        90.0,
        arrival=0.0,
        weight=0.1,
        preemptible=False,
        running={"pool": "gpu", "gpus": ["n0/0"], "since": 0.0},
    )
    first = job("first", 1.0, arrival=-9.0, weight=9.0, deadline=20.0)
    state = RoundState.first(
        instance([stays, first]), RoundPolicy(ranking=ranking, options=RANKINGS[ranking])
    )
    for _ in range(6):
        plan = solve_round(state)
        assert plan.verdict.tolist() == [Verdict.KEEP, Verdict.HOLD]
        assert plan.order is not None
        place = plan.order.position[1] + 1
        whose = "that cannot be stopped" if place == 1 else "before it"
        told = (
            f"place {place} of 2 in the order of {ranking}: GPUs that it needs go to 1 job {whose}"
        )
        assert plan.decision(1).reason == told
        assert running(plan) == {"stays"}
        state = advanced(followed(state, plan), state.now + 1.0)


def test_reasons_tell_the_place_and_who_has_the_gpus() -> None:
    held = {"preemptible": False, "running": {"pool": "gpu", "gpus": ["n0/0"], "since": 0.0}}
    stopped = {"running": {"pool": "gpu", "gpus": ["n0/1"], "since": 0.0}}
    jobs = [
        job("a", weight=4.0), job("b", weight=3.0, **stopped), job("c", weight=1.0, **held), job("d", weight=2.0),
        job("e", weight=5.0),
    ]  # fmt: skip
    told = decisions(planned(jobs, "priority", (3,)))
    words = "in the order of priority: GPUs that it needs go to"
    assert told == {
        "a": ("start", ""),
        "b": ("preempt", f"place 3 of 5 {words} 2 jobs before it and 1 job that cannot be stopped"),
        "c": ("keep", ""),
        "d": ("hold", f"place 4 of 5 {words} 2 jobs before it and 1 job that cannot be stopped"),
        "e": ("start", ""),
    }


def test_a_job_that_must_not_be_displaced_is_among_the_others() -> None:
    stays = {"running": {"pool": "gpu", "gpus": ["n0/0"], "since": 0.0}}
    plan = planned([job("a", weight=2.0), job("b", **stays)], "priority", (1,), {"max_moves": 0})
    assert decisions(plan)["a"] == (
        "hold",
        "place 1 of 2 in the order of priority: GPUs that it needs go to others",
    )


def test_patience_comes_before_a_ranking() -> None:
    jobs = [job("a", 9.0, weight=2.0), job("b", 9.0)]
    history = Simulation(jobs, RoundPolicy(ranking="priority", patience=3)).run().history
    assert [names for _, names in history[:5]] == [("a",), ("a",), ("a",), ("b",), ("a",)]


def test_a_strict_order_is_blocked_by_its_head() -> None:
    jobs = [job("a", 2.0), job("wide", 2.0, gpus=2), job("small", 2.0)]
    strict = planned(jobs, "fcfs", (2,), {"options": {"strict": True}})
    assert decisions(strict) == {
        "a": ("start", ""),
        "wide": (
            "hold",
            "place 2 of 3 in the order of fcfs: GPUs that it needs go to 1 job before it",
        ),
        "small": (
            "hold",
            "place 3 of 3 in the order of fcfs: wide is before it, has no room, and lets nobody pass",
        ),
    }
    assert running(planned(jobs, "fcfs", (2,))) == {"a", "small"}
    done = simulated(jobs, "fcfs", (2,), strict=True).done
    assert done == {"a": 2.0, "wide": 4.0, "small": 6.0}


def test_a_strict_order_is_blocked_by_a_head_that_finds_no_node() -> None:
    """Three nodes with one GPU free on each: two GPUs are free, but not on one node."""
    stuck = [
        job(
            f"stuck{row}",
            preemptible=False,
            running={"pool": "gpu", "gpus": [f"n{row}/0"], "since": 0.0},
        )
        for row in range(3)
    ]
    wide = job("wide", gpus=2, throughput={"gpu": {"2": {"1": 1.0}}})
    jobs = [*stuck, wide, job("small")]
    strict = planned(jobs, "fcfs", (2, 2, 2), {"options": {"strict": True}})
    assert running(strict) == {"stuck0", "stuck1", "stuck2"}
    told = decisions(strict)
    assert told["small"] == (
        "hold", "place 5 of 5 in the order of fcfs: wide is before it, has no room, and lets nobody pass"
    )  # fmt: skip
    assert told["wide"][0] == "hold" and "place" not in told["wide"][1]
    assert running(planned(jobs, "fcfs", (2, 2, 2))) == {"stuck0", "stuck1", "stuck2", "small"}


@pytest.mark.parametrize("limit", [None, 0])
def test_a_strict_order_stops_running_jobs_behind_its_blocked_head(limit: int | None) -> None:
    """Three GPUs are then idle, and `max_moves` does not limit it."""
    firm = {"pool": "gpu", "gpus": ["n0/0"], "since": 0.0}
    runs = {"pool": "gpu", "gpus": ["n0/1"], "since": 0.0}
    jobs = [
        job("firm", 9.0, preemptible=False, running=firm),
        job("wide", 9.0, gpus=4),
        job("behind", 9.0, running=runs),
    ]
    policy = {"max_moves": limit}
    strict = planned(jobs, "fcfs", (2, 2), {**policy, "options": {"strict": True}})
    assert running(strict) == {"firm"}
    assert decisions(strict)["behind"] == (
        "preempt",
        "place 3 of 3 in the order of fcfs: wide is before it, has no room, and lets nobody pass",
    )
    assert running(planned(jobs, "fcfs", (2, 2), policy)) == {"firm", "behind"}


@pytest.mark.parametrize("constraints", [[], [{"kind": "anti-affinity", "jobs": ["x", "y"]}]])
def test_a_job_ahead_moves_so_that_one_behind_has_room(constraints: list[Document]) -> None:
    """With the constraint room is made one by one, without it for many gangs together."""
    places = [{"pool": "gpu", "gpus": [f"n{row}/0"], "since": 0.0} for row in range(2)]
    jobs = [
        job("first", 9.0, running=places[0]),
        job("second", 9.0, running=places[1]),
        job("wide", 9.0, gpus=2),
        job("x", 9.0),
        job("y", 9.0),
    ]
    plan = planned(jobs, "fcfs", (2, 2), {"constraints": constraints})
    verdicts = {name: verdict for name, (verdict, _) in decisions(plan).items()}
    assert verdicts == {
        "first": "move", "second": "keep", "wide": "start", "x": "hold", "y": "hold",
    }  # fmt: skip


def test_the_head_of_a_strict_order_tries_all_its_ways_to_run() -> None:
    """The fast way needs two GPUs of one node, which are not there; the slow one has room."""
    stuck = [
        job(
            f"stuck{row}",
            preemptible=False,
            running={"pool": "gpu", "gpus": [f"n{row}/0"], "since": 0.0},
        )
        for row in range(2)
    ]
    wide = job("wide", gpus=2, throughput={"gpu": {"2": {"1": 2.0, "2": 1.0}}})
    plan = planned(
        [*stuck, wide, job("small"), job("last")], "fcfs", (2, 2, 1), {"options": {"strict": True}}
    )
    assert running(plan) == {"stuck0", "stuck1", "wide", "small"}
    assert plan.decision(2).gpus in (("n0/1", "n1/1"), ("n0/1", "n2/0"), ("n1/1", "n2/0"))
    assert plan.decision(4).reason.startswith("place 5 of 5")


def test_elastic_jobs_run_on_their_smallest_number_of_gpus() -> None:
    wide = {"min": 1, "max": 4}
    rates = {"gpu": {"1": 1.0, "2": 1.9, "3": 2.7, "4": 3.4}}
    plan = planned(
        [job("a", 9.0, gpus=wide, throughput=rates), job("b", 9.0, gpus=2)], "srtf", (4,)
    )
    assert {name: len(plan.decision(row).gpus) for row, name in enumerate("ab")} == {"a": 1, "b": 2}


def test_a_job_keeps_its_gpus_while_it_goes_first() -> None:
    jobs = [job("a", 5.0), job("b", 5.0), job("c", 5.0)]
    policy = RoundPolicy(ranking="fcfs")
    state = RoundState.first(instance(jobs, (1, 1)), policy)
    first = solve_round(state)
    second = solve_round(advanced(followed(state, first), 1.0))
    assert second.verdict.tolist() == [Verdict.KEEP, Verdict.KEEP, Verdict.HOLD]
    assert second.running == first.running


def test_the_same_state_gives_the_same_plan() -> None:
    rng = np.random.default_rng(5)
    jobs = [
        job(f"j{row}", float(rng.integers(1, 4)), gpus=int(rng.integers(1, 3))) for row in range(20)
    ]
    for ranking, options in RANKINGS.items():
        state = RoundState.first(
            instance(jobs, (4, 4)), RoundPolicy(ranking=ranking, options=options)
        )
        one, other = (solve_round(state).to_document() for _ in range(2))
        assert {**one, "timings": {}} == {**other, "timings": {}}


@pytest.mark.parametrize("ranking", RANKINGS)
def test_gangs_on_one_node_run_if_they_have_room_beside_those_before_them(ranking: str) -> None:
    rng = np.random.default_rng(11)
    jobs = [
        job(
            f"j{row}", float(rng.integers(1, 9)), gpus=int(rng.choice([1, 1, 2, 3, 5])),
            weight=float(rng.integers(1, 4)), arrival=-float(rng.integers(0, 5)), deadline=float(rng.integers(1, 20)),
        )
        for row in range(12)
    ]  # fmt: skip
    state = RoundState.first(
        instance(jobs, (6,)), RoundPolicy(ranking=ranking, options=RANKINGS[ranking])
    )
    for _ in range(6):
        plan = solve_round(state)
        assert plan.order is not None
        free, expected = 6, set()
        for row in np.argsort(plan.order.position).tolist():
            if jobs[row]["gpus"] <= free:
                free -= jobs[row]["gpus"]
                expected.add(f"j{row}")
        assert running(plan) == expected
        state = advanced(followed(state, plan), state.now + 1.0)


# --- what a ranking keeps ------------------------------------------------------------------------------------------


def test_pinned_and_forbidden_are_kept_and_others_are_told() -> None:
    pools = [
        {"name": name, "nodes": 1, "gpus_per_node": 2, "cost_per_gpu_hour": 1.0}
        for name in ("fast", "slow")
    ]
    jobs = [job(f"j{row}", 9.0, throughput={"fast": 2.0, "slow": 1.0}) for row in range(4)]
    constraints = [
        {"kind": "forbidden", "jobs": ["j0"], "pools": ["fast"]},
        {"kind": "forbidden", "jobs": ["j1"], "pools": ["fast", "slow"]},
        {"kind": "budget", "limit": 1e-3},
    ]
    plan = planned(jobs, "fcfs", cluster={"pools": pools}, constraints=constraints)
    assert [plan.decision(row).pool for row in range(4)] == ["slow", None, "fast", "fast"]
    assert plan.decision(1).reason == "side constraints leave it no way to run"
    (notice,) = plan.notices
    assert (
        notice
        == "a ranking gives no fractions of the time, and does not keep the side constraints budget"
    )


def test_reserved_nodes_take_no_jobs_of_a_ranking() -> None:
    state = RoundState.first(
        instance([job("a"), job("b")], (1, 1)),
        RoundPolicy(ranking="fcfs"),
        [Reservation(("n0",), 0.0, 5.0)],
    )
    plan = solve_round(state)
    assert plan.decision(0).gpus == ("n1/0",)
    assert (
        plan.decision(1).reason
        == "place 2 of 2 in the order of fcfs: GPUs that it needs go to 1 job before it"
    )


# --- rankings that fail --------------------------------------------------------------------------------------------


class Wrong(Ranking):
    """Gives what it is told to give."""

    name = "wrong"
    answer: object = ()
    mask: object = None

    def renews(self, jobs: RankedJobs):  # type: ignore[no-untyped-def]
        return super().renews(jobs) if self.mask is None else self.mask

    def keys(self, jobs: RankedJobs):  # type: ignore[no-untyped-def]
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.zeros(3), "keys gives ndarray, expected a tuple of arrays"),
        ((np.zeros(3), np.zeros(2)), "key 1 has shape (2,), expected (3,): one number per job"),
        ((1.0,), "key 0 has shape (), expected (3,): one number per job"),
        ((np.zeros((3, 1)),), "key 0 has shape (3, 1), expected (3,): one number per job"),
        ((np.array([0.0, np.nan, np.nan]),), "key 0 is NaN for 2 of 3 jobs, expected numbers"),
        ((np.array(["a", "b", "c"]),), "key 0 has the type <U1, expected numbers"),
        (ZeroDivisionError("oh"), "failed with ZeroDivisionError: oh"),
    ],
)
def test_a_ranking_that_gives_no_order(
    answer: object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        policies, "load_ranking", lambda name: type("It", (Wrong,), {"answer": answer})
    )
    plan = planned(
        [job("a", arrival=0.0), job("b", arrival=-2.0), job("c", arrival=-1.0)], "wrong", (2,)
    )
    assert plan.fallback == f"ranking wrong{'' if 'failed' in words else ':'} {words}; jobs go in the order in which " \
        "they arrived"  # fmt: skip
    assert running(plan) == {"b", "c"}
    assert plan.to_document()["fallback"] == plan.fallback


def test_a_mask_of_the_wrong_shape() -> None:
    order = Order.of(type("It", (Wrong,), {"mask": [True]})(), seen(arrival=[1.0, 0.0]))
    assert order.fallback is not None
    assert "ranking wrong: the answer of renews has shape (1,), expected (2,)" in order.fallback
    assert order.position.tolist() == [1, 0]
    assert not order.renewed.any()


def test_an_interruption_is_none_of_its_failures() -> None:
    with pytest.raises(Interrupted):
        Order.of(type("It", (Wrong,), {"answer": Interrupted("stop")})(), seen(arrival=[0.0]))


def test_keys_may_be_infinite_whole_or_none() -> None:
    for keys, places in (
        ((), [1, 0, 2]),
        ((np.array([np.inf, 1.0, -np.inf]),), [2, 1, 0]),
        ((np.array([True, False, False]), np.array([1, 3, 2])), [2, 1, 0]),
    ):
        order = Order.of(type("It", (Wrong,), {"answer": keys})(), seen(arrival=[1.0, 0.0, 2.0]))
        assert order.fallback is None
        assert order.position.tolist() == places


def test_two_keys_count_in_turn() -> None:
    first: FloatArray = np.array([1.0, 0.0, 1.0])
    order = Order.of(
        type("It", (Wrong,), {"answer": (first, np.array([2.0, 9.0, 1.0]))})(),
        seen(arrival=[0.0] * 3),
    )
    assert order.position.tolist() == [2, 0, 1]
