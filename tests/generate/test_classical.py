"""Unrelated machines, assignment, knapsacks, leases: the numbers are those that the docstrings state."""

from __future__ import annotations

import copy
import itertools
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from scipy.optimize import Bounds, LinearConstraint, milp

import optsched
from optsched.errors import UsageError

# Private names: the draws and steps that generators are made of
from optsched.generate import GENERATORS, gap, generate, knapsack, leases, unrelated
from optsched.instance import Instance, instance_bytes

pytestmark = pytest.mark.property

SEEDS = st.integers(0, 2**32)


def jobs_of(kind: str, **options: Any) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = generate(kind, **options).instance.to_document()["jobs"]
    return jobs


@pytest.mark.parametrize("kind", [kind for kind in GENERATORS if kind != "cluster"])
def test_same_seed_same_bytes(kind: str) -> None:
    first = instance_bytes(generate(kind, jobs=12, seed=5).instance, "json")
    assert instance_bytes(generate(kind, jobs=12, seed=5).instance, "json") == first
    assert (
        instance_bytes(generate(kind, jobs=12, seed=6).instance, "json").replace(b"-s6", b"-s5")
        != first
    )
    assert generate(kind, jobs=12, name="mine").instance.name == "mine"
    assert len(generate(kind, jobs=12).instance.jobs_table) == 12


@pytest.mark.parametrize("kind", GENERATORS)
def test_every_option_has_help_and_every_limit_holds(kind: str) -> None:
    options = GENERATORS[kind].options
    for name, schema in options.model_json_schema()["properties"].items():
        assert schema["description"].endswith("."), name
        for key, step in (("minimum", -1), ("exclusiveMinimum", 0), ("maximum", 1)):
            if key in schema:
                with refuses(f"{name}: found ..., expected a number ...", UsageError):
                    generate(kind, **{name: schema[key] + step})
        if "enum" in schema:
            with refuses(f'{name}: found "other", expected one of ...', UsageError):
                generate(kind, **{name: "other"})


# --- unrelated -----------------------------------------------------------------------------------------------------


def test_unrelated_is_durations_by_machine() -> None:
    options = unrelated.UnrelatedOptions(jobs=40, machines=6, low=20, high=50, seed=3)
    p = unrelated.durations(options)
    instance = generate("unrelated", jobs=40, machines=6, low=20, high=50, seed=3).instance
    assert instance.cluster.gpus(0).tolist() == [1] * 6
    for job, row in zip(instance.to_document()["jobs"], p.tolist(), strict=True):
        assert [
            (option["pool"], option["gpus"], option["duration"]) for option in job["options"]
        ] == [(f"m{machine}", 1, duration) for machine, duration in enumerate(row)]
    assert set(p.ravel().tolist()) == set(range(20, 51))


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_correlation_is_where_it_is_asked_for(seed: int) -> None:
    def spread(correlation: str, axis: int) -> int:
        noise = {} if correlation == "none" else {"noise": 10}
        p = unrelated.durations(
            unrelated.UnrelatedOptions(
                jobs=60, machines=8, correlation=correlation, seed=seed, **noise
            )
        )
        assert p.min() >= 10 and p.max() <= 110
        return int(np.ptp(p, axis=axis).max())

    assert spread("jobs", axis=1) < 10 <= spread("jobs", axis=0)
    assert spread("machines", axis=0) < 10 <= spread("machines", axis=1)
    assert min(spread("none", axis=0), spread("none", axis=1)) > 30


# --- assignment ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", "abcde")
@pytest.mark.parametrize(("jobs", "agents"), [(30, 5), (12, 3), (7, 1)])
def test_gap_by_its_formulas(type: str, jobs: int, agents: int) -> None:
    p, c, b = gap.draw(gap.GapOptions(jobs=jobs, agents=agents, type=type, seed=11))
    assert p.shape == c.shape == (agents, jobs)
    if type in "abc":
        assert p.min() >= 5 and p.max() <= 25 and c.min() >= 10 and c.max() <= 50
    elif type == "d":
        assert p.min() >= 1 and p.max() <= 100 and np.abs(c + p - 111).max() <= 10
    else:
        assert p.min() >= 1
        assert ((c <= np.round(1000 / p)) & (c >= 1000 / p - 10.5)).all()
    if type in "ab":
        load = [0] * agents
        for job in range(jobs):
            cheapest = min(range(agents), key=lambda agent: (c[agent, job], agent))
            load[cheapest] += int(p[cheapest, job])
        wanted = np.full(agents, 0.6 * jobs / agents * 15 + 0.4 * max(load)) * (
            0.7 if type == "b" else 1.0
        )
    else:
        wanted = np.array([0.8 * sum(row) / agents for row in p.tolist()])
    assert ((b <= wanted + 1e-9) & (b > wanted - 1) & (b % 1 == 0)).all()


def test_gap_b_has_70_percent_of_a() -> None:
    (p, c, a), (q, d, b) = (gap.draw(gap.GapOptions(type=kind, seed=2)) for kind in "ab")
    assert (p == q).all() and (c == d).all()
    assert np.abs(b - 0.7 * a).max() <= 1


def test_gap_e_has_the_distribution_of_its_formula() -> None:
    p, _, _ = gap.draw(gap.GapOptions(jobs=4000, agents=5, type="e"))
    assert p.mean() == pytest.approx(11, rel=0.03)  # 1 + 10 times an exponential
    assert np.quantile(p, 0.9) == pytest.approx(1 + 10 * np.log(10), rel=0.03)


@pytest.mark.parametrize("objective", ["cost", "value"])
def test_gap_as_an_instance(objective: str) -> None:
    p, c, b = gap.draw(gap.GapOptions(jobs=9, agents=4, type="d", seed=3))
    instance = generate("gap", jobs=9, agents=4, type="d", objective=objective, seed=3).instance
    assert {r.name: r.capacity for r in instance.cluster.resources} == {
        f"agent{i}": b[i] for i in range(4)
    }
    for j, job in enumerate(instance.to_document()["jobs"]):
        assert job["options"] == [
            {"gpus": 0, "uses": {f"agent{i}": p[i, j]}, objective: c[i, j]} for i in range(4)
        ]


def test_least_costs_are_those_of_all_assignments() -> None:
    """By `gap`, and by `multiple-choice` with value = M - cost."""
    p, c, b = gap.draw(gap.GapOptions(jobs=5, agents=2, type="a", seed=1))
    document = generate("gap", jobs=5, agents=2, type="a", seed=1).instance.to_document()
    least = optsched.solve(copy.deepcopy(document), "gap").objective
    M = int(c.max(axis=0).sum()) + 1
    for job in document["jobs"]:
        for option in job["options"]:
            option["value"] = M - option.pop("cost")
    best = min(
        sum(c[agent, job] for job, agent in enumerate(agents))
        for agents in itertools.product(range(2), repeat=5)
        if all(
            sum(p[i, j] for j, agent in enumerate(agents) if agent == i) <= b[i] for i in range(2)
        )
    )
    assert least == best
    assert 5 * M - optsched.solve(document, "multiple-choice").objective == pytest.approx(best)


# --- knapsacks -----------------------------------------------------------------------------------------------------


@given(
    SEEDS,
    st.integers(1, 30),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from([0.25, 0.5, 0.75, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_knapsack_by_its_formulas(
    seed: int, jobs: int, resources: int, choices: int, tightness: float
) -> None:
    options = {
        "jobs": jobs,
        "resources": resources,
        "choices": choices,
        "tightness": tightness,
        "seed": seed,
    }
    r, u, b = knapsack.draw(knapsack.KnapsackOptions(**options))
    assert r.shape == (jobs, choices, resources) and r.min() >= 0 and r.max() <= 1000
    wanted = [tightness * sum(max(row[:, k]) for row in r) for k in range(resources)]
    assert ((b <= np.array(wanted) + 1e-6) & (b > np.array(wanted) - 1)).all()
    extra = u - r.mean(axis=2)
    assert extra.min() >= -0.5 and extra.max() <= 501
    instance = generate("knapsack", **options).instance
    assert [resource.capacity for resource in instance.cluster.resources] == b.tolist()
    for job, uses, values in zip(
        instance.to_document()["jobs"], r.tolist(), u.tolist(), strict=True
    ):
        assert [option["value"] for option in job["options"]] == values
        assert [
            [option.get("uses", {}).get(f"r{k}", 0) for k in range(resources)]
            for option in job["options"]
        ] == uses


def test_all_fit_where_nothing_is_tight() -> None:
    r, _, b = knapsack.draw(knapsack.KnapsackOptions(tightness=1.0, choices=3))
    assert (r.max(axis=1).sum(axis=0) <= b).all()


# --- leases --------------------------------------------------------------------------------------------------------


def can_be_kept(instance: Instance) -> bool:
    """Whether a plan in leases keeps all deadlines, by an integer program: X_it = 1 if job i has lease t."""
    table, lease = instance.jobs_table, instance.round
    needed = np.ceil(table.steps / lease)
    due = (table.deadline / lease).astype(int)
    n, T = len(table), int(due.max())
    own = np.kron(np.eye(n), np.ones(T))
    use = np.kron(table.gpus_min, np.eye(T))
    upper = (np.arange(T) < due[:, np.newaxis]).ravel().astype(float)
    rows = [
        LinearConstraint(own, needed, needed),
        LinearConstraint(use, ub=instance.cluster.gpus(0)[0]),
    ]
    result = milp(
        np.zeros(n * T), constraints=rows, integrality=np.ones(n * T), bounds=Bounds(0, upper)
    )
    assert result.status in (0, 2), result.message
    return bool(result.success)


@given(SEEDS, st.integers(1, 25), st.integers(1, 3), st.floats(0.3, 1.0))
@settings(max_examples=25, deadline=None)
def test_deadlines_can_be_kept_up_to_tightness_1(
    seed: int, jobs: int, nodes: int, tightness: float
) -> None:
    result = generate(
        "leases", jobs=jobs, nodes=nodes, gpus_per_node=3, tightness=tightness, seed=seed, longest=4
    )
    assert can_be_kept(result.instance)
    assert result.notes() == ("a plan that keeps all deadlines exists, by construction",)


@given(SEEDS, st.floats(1.05, 3.0))
@settings(max_examples=25, deadline=None)
def test_what_is_told_of_tighter_deadlines_is_true(seed: int, tightness: float) -> None:
    result = generate("leases", jobs=20, nodes=1, tightness=tightness, seed=seed, longest=4)
    (note,) = result.notes()
    if note.startswith("not all deadlines can be kept: the jobs due by "):
        assert not can_be_kept(result.instance)
    else:
        assert note == "whether all deadlines can be kept is not known"


def test_twice_too_tight_is_proven_infeasible() -> None:
    for seed in range(20):
        (note,) = generate("leases", tightness=2, seed=seed).notes()
        assert note.startswith("not all deadlines can be kept"), note


def test_the_note_counts_right() -> None:
    plan = leases.Leases(
        gang=np.array([2, 2, 1]),
        needed=np.array([2, 2, 1]),
        planned=np.zeros(3, int),
        due=np.array([2, 3, 9]),
        gpus=2,
    )
    assert plan.overfull() == (
        3,
        8,
    )  # 2 x 2 + 2 x 2 GPU leases, 3 x 2 there are; 9 of 18 by lease 9
    assert (
        leases.Leases(plan.gang, plan.needed, plan.planned, np.array([2, 4, 5]), 2).overfull()
        is None
    )


def test_the_plan_is_a_plan() -> None:
    """Deadlines of the plan itself leave no lease unused that an earlier job could have had."""
    options = leases.LeasesOptions(jobs=60, nodes=1, gpus_per_node=4, longest=5, tightness=1.0)
    plan = leases.draw(options)
    assert set(plan.gang.tolist()) == {1, 2, 4}
    assert (plan.due == plan.planned).all() and (plan.due >= plan.needed).all()
    work = (plan.gang * plan.needed).sum()
    assert work <= 4 * plan.planned.max() < 1.15 * work
    assert plan.overfull() is None
    loose = leases.draw(options.model_copy(update={"tightness": 0.7}))
    wanted = [
        max(b, math.ceil(end / 0.7))
        for b, end in zip(plan.needed.tolist(), plan.planned.tolist(), strict=True)
    ]
    assert loose.due.tolist() == wanted
    slacker = [
        leases.draw(options.model_copy(update={"tightness": t})).due.sum()
        for t in (0.25, 0.5, 1.0, 2.0)
    ]
    assert all(later >= earlier for later, earlier in pairwise(slacker))


def test_leases_as_an_instance() -> None:
    instance = generate("leases", jobs=30, lease=600, longest=3, seed=2).instance
    plan = leases.draw(leases.LeasesOptions(jobs=30, lease=600, longest=3, seed=2))
    table = instance.jobs_table
    assert instance.round == 600
    assert (table.gpus_min == plan.gang).all() and (table.deadline == 600 * plan.due).all()
    assert (np.ceil(table.steps / 600) == plan.needed).all()
    assert (instance.rates.rate == 1).all()


def test_noise_of_durations_drawn_alone_is_refused() -> None:
    with refuses(
        "noise: found 3..., expected none unless correlation is jobs or machines", UsageError
    ):
        generate("unrelated", jobs=3, noise=3)
