"""Fronts between two objectives: against scipy, shape, ends, efficiency, certificates, refusals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from scipy.optimize import linprog
from test_whatif import random_instance

import optsched
from optsched.api import make_formulation
from optsched.errors import Interrupted, SolverUnavailable, UsageError
from optsched.program import AllocationProgram, Minimum
from optsched.sensitivity import Front, FrontPoint

# Private names: the held program that answers are computed with
from optsched.sensitivity.front import efficient

pytestmark = pytest.mark.property

PAIRS = [
    ("max-min-fairness", "max-throughput"),
    ("max-throughput", "max-min-fairness"),
    ("makespan", "max-throughput"),
    ("makespan", "max-min-fairness"),
]


def values_of(front: Front) -> np.ndarray:
    return np.array([point.values for point in front.points])


def scipy_front(instance: optsched.Instance, pair: tuple[str, str], eps: float) -> float:
    """max f  s.t.  g >= eps, with all variables of both programs in one dense program of scipy's."""
    candidates = optsched.compile(instance)
    f, g = (make_formulation(name) for name in pair)
    C = candidates.classes(f.reads | g.reads)
    first, second = f.build(C), g.build(C)
    assert isinstance(first, AllocationProgram) and isinstance(second, AllocationProgram)
    width = C.columns + 2
    rows, sides = [sp.hstack([C.member, sp.csr_matrix((len(C), 2))])], [C.count]
    rows.append(sp.hstack([C.usage, sp.csr_matrix((len(C.capacity), 2))]))
    sides.append(C.capacity)
    for place, program in enumerate((first, second)):
        level = sp.csr_matrix(program.levels)
        if not isinstance(program.utility, Minimum):
            level = sp.csr_matrix(program.utility.weight[np.newaxis, :] @ level)  # type: ignore[union-attr]
        count = C.count if isinstance(program.utility, Minimum) else np.ones(1)
        auxiliary = sp.lil_matrix((len(count), 2))
        auxiliary[:, place] = count[:, np.newaxis]
        rows.append(sp.hstack([-level, auxiliary.tocsr()]))
        sides.append(np.zeros(len(count)))
    cost = np.zeros(width)
    cost[-2] = -1.0
    bounds = [(0, None)] * C.columns + [(None, None), (eps, None)]
    found = linprog(cost, A_ub=sp.vstack(rows), b_ub=np.concatenate(sides), bounds=bounds)
    return float(-found.fun) if found.status == 0 else -np.inf


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("instance", ["@quickstart", "random"])
def test_every_point_is_the_optimum_at_its_level(pair: tuple[str, str], instance: str) -> None:
    problem = random_instance(3) if instance == "random" else optsched.load(instance)
    front = optsched.pareto(problem, pair, points=7)
    assert front.missing == 0 and len(front.points) + front.removed == 7
    assert (front.rebuilt, front.runs) == ((), 10)
    for first, second in values_of(front):
        best = scipy_front(problem, pair, second * (1 - 1e-9))
        assert first == pytest.approx(best, rel=1e-6, abs=1e-6 * front.points[0].values[0])


@pytest.mark.parametrize("pair", [*PAIRS, ("makespan", "cost"), ("cost", "max-throughput")])
def test_the_ends_are_the_single_optima(pair: tuple[str, str]) -> None:
    front = optsched.pareto("@quickstart", pair, points=5)
    first, second = (optsched.solve("@quickstart", name).objective for name in pair)
    assert front.points[0].objectives[0] == pytest.approx(first, rel=1e-7)
    assert front.points[-1].objectives[1] == pytest.approx(second, rel=1e-7)
    assert front.ideal == pytest.approx((first, second), rel=1e-9)
    assert front.nadir == (front.points[-1].objectives[0], front.points[0].objectives[1])


def test_the_ends_are_efficient_and_not_only_weakly() -> None:
    """The smallest level is the same however one spare GPU is used: of these optima the end has the best throughput."""
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 1}, {"name": "q", "nodes": 1,
                                                                            "gpus_per_node": 1}]},
        "jobs": [{"id": "a", "throughput": {"p": 1.0}}, {"id": "b", "throughput": {"p": 1.0, "q": 7.0}}],
    }  # fmt: skip
    front = optsched.pareto(
        optsched.Instance.from_document(document), ("max-min-fairness", "max-throughput"), points=3
    )
    (point,) = front.points  # both agree
    assert point.objectives[1] == pytest.approx(8.0)
    assert front.removed == 2


def test_the_first_end_is_the_best_for_the_second_objective_among_its_optima() -> None:
    """Two jobs share pool p and hold the level down; the third has q for itself and may run all the time, or less."""
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": name, "nodes": 1, "gpus_per_node": 1} for name in "pq"]},
        "jobs": [{"id": "a", "throughput": {"p": 1.0}}, {"id": "b", "throughput": {"p": 3.0}},
                 {"id": "c", "throughput": {"q": 5.0}}],
    }  # fmt: skip
    front = optsched.pareto(
        optsched.Instance.from_document(document), ("max-min-fairness", "max-throughput"), points=3
    )
    assert [point.objectives for point in front.points] == [
        pytest.approx((1.0, 7.0)), pytest.approx((0.5, 7.5)), pytest.approx((0.0, 8.0))]  # fmt: skip
    for seed in range(6):  # one long job alone sets the makespan: the others have many optima
        problem = random_instance(seed)
        end = optsched.pareto(problem, ("makespan", "max-throughput"), points=2).points[0]
        best = scipy_front(problem, ("max-throughput", "makespan"), end.values[0] * (1 - 1e-9))
        assert end.values[1] == pytest.approx(best, rel=1e-6)


@given(st.integers(0, 10_000), st.sampled_from(PAIRS))
@settings(max_examples=15, deadline=None)
def test_fronts_are_monotone_concave_and_certified(seed: int, pair: tuple[str, str]) -> None:
    front = optsched.pareto(random_instance(seed, jobs=6), pair, points=6)
    values = values_of(front)
    assert (np.diff(values[:, 0]) < 0).all() and (np.diff(values[:, 1]) > 0).all()
    slopes = np.diff(values[:, 0]) / np.diff(values[:, 1])
    assert (np.diff(slopes) <= 1e-5 * np.abs(slopes).max(initial=0.0)).all()
    for point in front.points:
        assert point.solution.certificate.ok and point.solution.status == "optimal"


def test_levels_are_equidistant_in_the_second_objective() -> None:
    front = optsched.pareto(
        "@quickstart", ("max-throughput", "makespan"), points=6
    )  # one end has no makespan
    assert front.points[0].objectives[1] == float("inf")
    assert np.diff(values_of(front)[:, 1]) == pytest.approx(
        0.2 * front.points[-1].values[1], rel=1e-6
    )
    seconds = optsched.pareto("@quickstart", ("max-min-fairness", "makespan"), points=6)
    told = np.array([point.objectives[1] for point in seconds.points])
    assert np.diff(told) == pytest.approx((told[-1] - told[0]) / 5, rel=1e-5)


def test_the_exchange_is_the_slope_of_the_front() -> None:
    for pair in (("max-min-fairness", "max-throughput"), ("makespan", "cost")):
        front = optsched.pareto("@quickstart", pair, points=60)
        points = np.array([point.objectives for point in front.points])
        exchange = np.array([point.exchange or np.nan for point in front.points])
        finite = np.isfinite(points).all(axis=1)
        slope = np.abs(np.diff(points[finite, 0]) / np.diff(points[finite, 1]))
        inner = exchange[finite][1:-1]
        low, high = np.minimum(slope[:-1], slope[1:]), np.maximum(slope[:-1], slope[1:])
        assert ((inner >= low * (1 - 1e-4)) & (inner <= high * (1 + 1e-4))).all()


# --- concave, whole jobs, constraints -----------------------------------------------------------------------------


def test_a_concave_objective_against_a_linear_one() -> None:
    front = optsched.pareto("@quickstart", ("proportional-fairness", "max-min-fairness"), points=4)
    alone = optsched.solve("@quickstart", "proportional-fairness")
    assert front.points[0].objectives[0] == pytest.approx(alone.objective, abs=1e-5)
    values = values_of(front)
    assert (np.diff(values[:, 0]) < 0).all() and (np.diff(values[:, 1]) > 0).all()
    assert all(
        point.solution.certificate.ok and point.solution.gap < 1e-6 for point in front.points
    )
    assert front.rebuilt == (
        "solved from scratch, as a utility that is not linear cannot be changed in place",
    )


def test_an_end_where_the_concave_objective_does_not_exist_is_left_out() -> None:
    front = optsched.pareto("@quickstart", ("proportional-fairness", "max-throughput"), points=5)
    assert (len(front.points), front.missing) == (4, 1)
    assert front.notes[0].startswith("at the best total throughput some job gets nothing")
    assert all(point.solution.certificate.ok for point in front.points)


def test_whole_jobs_against_brute_force() -> None:
    random = np.random.default_rng(5)
    rate = random.integers(1, 9, (4, 2)).astype(float)
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": name, "nodes": 2, "gpus_per_node": 1, "cost_per_gpu_hour": price}
                              for name, price in (("fast", 3.0), ("slow", 1.0))]},
        "jobs": [{"id": f"j{row}", "throughput": {"fast": rate[row, 0], "slow": rate[row, 1]}} for row in range(4)],
    }  # fmt: skip
    front = optsched.pareto(
        optsched.Instance.from_document(document),
        (("max-throughput", {"integral": True}), "cost"),
        points=17,
    )
    reachable = set()
    for code in range(3**4):
        place = [(code // 3**row) % 3 for row in range(4)]
        if place.count(0) <= 2 and place.count(1) <= 2:
            gained = sum(rate[row, where] for row, where in enumerate(place) if where < 2)
            reachable.add((gained, 3.0 * place.count(0) + 1.0 * place.count(1)))
    best = {
        one for one in reachable
        if not any(other != one and other[0] >= one[0] and other[1] <= one[1] for other in reachable)
    }  # fmt: skip
    found = {(round(a, 6), round(b, 6)) for a, b in (point.objectives for point in front.points)}
    assert found == best


def test_side_constraints_hold_on_the_whole_front() -> None:
    front = optsched.pareto(
        "@quickstart", ("makespan", "cost"), points=4, constraints=["deadlines"]
    )
    cheapest = optsched.solve("@quickstart", "cost", constraints=["deadlines"])
    assert front.points[-1].objectives[1] == pytest.approx(cheapest.objective, rel=1e-7)
    kinds = [item["kind"] for item in front.points[1].solution.constraints]
    assert kinds == ["deadlines", "at-least"]
    now = front.instance.now
    for point in front.points:
        for job in front.instance.jobs:
            if job.deadline is not None:
                ends = (job.steps - job.steps_done) / point.solution.throughput[job.id]
                assert now + ends <= job.deadline * (1 + 1e-6)


def test_an_infeasible_instance_has_ends_that_say_why() -> None:
    front = optsched.pareto("@infeasible", ("makespan", "max-throughput"))
    assert (
        front.points == () and front.missing == 11 and front.ideal is None and front.nadir is None
    )
    assert [end.status for end in front.ends] == ["infeasible", "infeasible"]
    assert len(front.ends[0].conflicts) == 3
    empty = instance_document({"p": 1})
    assert (
        optsched.pareto(
            optsched.Instance.from_document(empty), ("makespan", "max-throughput")
        ).points
        == ()
    )


def test_classes_change_nothing() -> None:
    one, other = (
        optsched.pareto("@packing", ("makespan", "max-throughput"), points=5, classes=classes)
        for classes in (True, False)
    )
    assert values_of(one) == pytest.approx(values_of(other), rel=1e-6, abs=1e-9)


# --- documents, limits, refusals ----------------------------------------------------------------------------------


def test_the_document() -> None:
    front = optsched.pareto("@quickstart", ("makespan", "cost"), points=4)
    document = front.to_document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["format"] == "optsched-pareto/1"
    assert set(document) == {
        "format", "instance", "constraints", "axes", "ends", "ideal", "nadir", "points", "removed", "missing",
        "session", "notes",
    }  # fmt: skip
    assert [axis["unit"] for axis in document["axes"]] == ["s", "USD/h"]
    last = document["points"][-1]
    assert last["objectives"] == [None, 0.0] and last["allocation"] == []
    assert document["points"][1]["certificate"]["ok"] and document["points"][1]["exchange"] > 0
    again = optsched.pareto("@quickstart", ("makespan", "cost"), points=4).to_document()
    assert again == document


def test_other_solvers_agree_and_say_that_they_rebuild() -> None:
    one = optsched.pareto("@quickstart", ("max-min-fairness", "max-throughput"), points=4)
    other = optsched.pareto(
        "@quickstart", ("max-min-fairness", "max-throughput"), points=4, solver="clarabel"
    )
    assert other.rebuilt[0] == "row bounds"
    assert all(
        point.solution.certificate.ok and point.solution.status == "optimal"
        for point in other.points
    )
    assert values_of(one) == pytest.approx(values_of(other), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "objectives",
    [("max-min-fairness", "max-throughput"), (("max-throughput", {"integral": True}), "cost")],
)
def test_stretches_in_other_processes_make_the_same_front(objectives: Any) -> None:
    begun: list[int] = []
    alone = optsched.pareto("@quickstart", objectives, points=6)
    divided = optsched.pareto(
        "@quickstart", objectives, points=6, processes=2, on_point=begun.append
    )
    assert begun == [1, 4]
    assert (divided.missing, divided.removed) == (alone.missing, alone.removed)
    for one, other in zip(alone.points, divided.points, strict=True):
        assert one.objectives == pytest.approx(other.objectives, rel=1e-9)
        assert other.solution.certificate.ok and other.exchange == pytest.approx(one.exchange)


def test_a_limit_leaves_points_out() -> None:
    front = optsched.pareto("@large", ("max-min-fairness", "max-throughput"), work_limit=1)
    assert front.missing + front.removed + len(front.points) == 11
    assert all(point.solution.certificate.ok for point in front.points)


def test_an_interrupted_search_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.sensitivity.held import HeldProgram

    honest, runs = HeldProgram.run, []

    def interrupted(self: Any, program: Any) -> Any:
        runs.append(program)
        if len(runs) > 6:
            raise Interrupted("interrupted before any feasible point was found")
        return honest(self, program)

    monkeypatch.setattr(HeldProgram, "run", interrupted)
    front = optsched.pareto("@quickstart", ("max-min-fairness", "max-throughput"))
    assert (len(front.points), front.missing) == (3, 8)
    del runs[3:]
    runs += [None] * 4
    with pytest.raises(Interrupted):
        optsched.pareto("@quickstart", ("max-min-fairness", "max-throughput"))


def test_dominated_and_repeated_points_are_removed() -> None:
    def points(*pairs: tuple[float, float]) -> list[FrontPoint]:
        return [FrontPoint(pair, pair, None) for pair in pairs]  # type: ignore[arg-type]

    kept = efficient(points((1, 5), (3, 3), (3, 3 + 1e-12), (2, 3), (5, 1), (5, 0.5), (0, 5)))
    assert [point.values for point in kept] == [(5, 1), (3, 3), (1, 5)]
    assert efficient([]) == []


@pytest.mark.parametrize(
    ("objectives", "words"),
    [
        (["makespan"], "objectives: found 1, expected two objectives that differ"),
        (["makespan", "makespan"], "objectives: found 2, expected two objectives that differ"),
        (["makespan", "costs"], "formulation: found 'costs'"),
        ([("makespan", {"alpha": 1}), "cost"], "option of makespan: found 'alpha'"),
    ],
)
def test_wrong_questions_are_refused_before_anything_is_read(objectives: Any, words: str) -> None:
    with refuses(words, UsageError):
        optsched.pareto("no/such/file.json", objectives)


@pytest.mark.parametrize(
    ("objectives", "words"),
    [
        (
            ["max-throughput", "proportional-fairness"],
            "objectives: found proportional-fairness, expected one that is linear as the second...",
        ),
        (["isolated", "cost"], "formulation: found isolated"),
        (["makespan", "lease"], "formulation: found lease"),
        (
            ["proportional-fairness", ("max-throughput", {"integral": True})],
            "objectives: found proportional-fairness, expected one that is linear, beside whole jobs",
        ),
    ],
)
def test_what_cannot_be_traded(objectives: Any, words: str) -> None:
    with refuses(words, UsageError):
        optsched.pareto("@quickstart", objectives)


def test_further_refusals() -> None:
    with refuses("points: found 1, expected a number from 2 to 10,000", UsageError):
        optsched.pareto("@quickstart", ("makespan", "cost"), points=1)
    with refuses("objectives: found smd and multiple-choice", UsageError):
        optsched.pareto("@smd", ("smd", "multiple-choice"))
    with pytest.raises(SolverUnavailable):
        optsched.pareto("@quickstart", ("makespan", "cost"), solver="gurobi9")
