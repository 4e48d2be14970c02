"""Water filling: the lexicographic optimum by brute force, tenants, extremes, and solvers that stop, lie or raise."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from filling_reference import Case, filled, random_case

import optsched
from optsched import Instance, Solution
from optsched.errors import SolverCrashed, UnsuitableSolver
from optsched.solution import Termination, Values
from optsched.solvers import HighsSession, Limits

pytestmark = pytest.mark.property

NAME = "water-filling"
FAMILIES = {
    "flat": {},
    "weighted": {"weights": True, "twins": True},
    "gangs": {"gangs": True, "weights": True},
    "pairs": {"pairs": True, "weights": True},
    "pairs of gangs": {"pairs": True, "gangs": True, "zeros": True},
    "tenants": {"tenants": True, "weights": True},
    "tenants with everything": {
        "tenants": True,
        "weights": True,
        "gangs": True,
        "pairs": True,
        "zeros": True,
    },
    "equal jobs of tenants": {"tenants": True, "twins": True, "zeros": True},
    "deadlines": {"deadlines": True, "weights": True, "zeros": True},
    "deadlines of tenants": {"deadlines": True, "tenants": True, "gangs": True, "twins": True},
}


def solve(given: Case | Instance, **options: Any) -> Solution:
    """Solved, certified, and verified from its file."""
    instance = given.instance() if isinstance(given, Case) else given
    if isinstance(given, Case) and given.deadline is not None:
        options.setdefault("constraints", ["deadlines"])
    solution = optsched.solve(instance, NAME, **options)
    assert solution.ok and solution.status == "optimal", solution.certificate
    report = optsched.verify(instance, solution.to_document())
    assert report.ok and report.bound == "verified", report
    return solution


def reached(solution: Solution) -> np.ndarray:
    """nt of every job, 0 for those that have no column."""
    nt = solution.figures["normalised throughput"]
    return np.array([nt.get(name, 0.0) for name in solution.instance.jobs_table.names])


# --- the lexicographic optimum ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("seed", "solver"), [(0, "highs"), (1, "clarabel"), (2, "glop"), (3, "highs-ipm"), (4, "auto")]
)
def test_levels_are_those_of_brute_force(family: str, seed: int, solver: str) -> None:
    case = random_case(seed, 4 + seed, **FAMILIES[family])
    expected = filled(case)
    for classes in (True, False):
        found = reached(solve(case, solver=solver, classes=classes))
        assert found == pytest.approx(expected, abs=1e-6 * expected.max())


def test_no_feasible_allocation_is_lexicographically_better() -> None:
    for seed in range(5):
        case = random_case(seed, 6, gangs=True, weights=True)
        ours = np.sort(reached(solve(case)) * case.gang / case.weight)
        A, b = case.polyhedron()
        levels = case.normalised() * (case.gang / case.weight)[:, None]
        random = np.random.default_rng(seed)
        for _ in range(200):
            x = random.exponential(size=A.shape[1]) * (random.random(A.shape[1]) < 0.5)
            x = x / max(1e-12, (A @ x / b).max())
            other = np.sort(levels @ x)
            differ = np.flatnonzero(np.abs(other - ours) > 1e-9)
            assert len(differ) == 0 or other[differ[0]] < ours[differ[0]]


def test_the_smallest_level_is_that_of_max_min_fairness() -> None:
    for seed in range(8):
        case = random_case(seed, 7, gangs=True, weights=True, pairs=seed % 2 == 0, zeros=True)
        levels = (reached(solve(case)) * case.gang / case.weight)[case.placed()]
        assert levels.min() == pytest.approx(optsched.solve(case.instance()).objective, rel=1e-8)


def test_a_level_says_how_far_the_objective_is_from_its_bound() -> None:
    solution = solve(random_case(3, 8, weights=True))
    assert solution.objective == pytest.approx(reached(solution).sum(), rel=1e-12)
    assert solution.bound_source == "dual" and 0 <= solution.bound - solution.objective <= 1e-8


# --- tenants ---------------------------------------------------------------------------------------------------------


def tenants(*policies: str, weight: tuple[float, ...] = ()) -> list[dict[str, Any]]:
    weights = weight or (1.0,) * len(policies)
    return [
        {"name": f"t{e}", "policy": policy, "weight": w}
        for e, (policy, w) in enumerate(zip(policies, weights, strict=True))
    ]


def equal_jobs(gpus: int, tenant: list[int], given: list[dict[str, Any]]) -> Instance:
    """Equal jobs of one GPU on one pool, where nt is the fraction of time."""
    return Instance.from_arrays(
        pools={"a": gpus},
        throughput=np.full((len(tenant), 1), 3.0),
        tenant=np.array(tenant),
        tenants=given,
    )


def test_weights_of_tenants_share_whatever_the_number_of_their_jobs() -> None:
    for few, many in ((4, 12), (8, 40), (9, 9)):
        found = reached(
            solve(
                equal_jobs(
                    4, [0] * few + [1] * many, tenants("fairness", "fairness", weight=(1, 3))
                )
            )
        )
        assert found[:few].sum() == pytest.approx(1.0) and found[few:].sum() == pytest.approx(3.0)


def test_one_tenant_is_no_tenant() -> None:
    case = random_case(7, 7, gangs=True, weights=True)
    alone = reached(solve(case))
    case.tenant, case.tenants = np.zeros(7, int), tenants("fairness", weight=(5.0,))
    assert reached(solve(case)) == pytest.approx(alone, abs=1e-8)
    case.tenants = tenants("fifo")
    assert reached(solve(case, tenants=False)) == pytest.approx(alone, abs=1e-8)


def test_the_second_job_of_a_queue_rises_when_the_first_cannot() -> None:
    """Weights 1 : 3 of a queue and three jobs on 2 GPUs: at clock 1 the first is done, and the second goes on."""
    given = tenants("fifo", "fairness", weight=(3.0, 1.0))
    found = reached(solve(equal_jobs(2, [0, 0, 1, 1, 1], given)))
    assert found == pytest.approx([1.0, 0.5, 1 / 6, 1 / 6, 1 / 6])
    first = reached(solve(equal_jobs(1, [0, 0, 1, 1, 1], given)))
    assert first == pytest.approx([0.75, 0.0, 1 / 12, 1 / 12, 1 / 12], abs=1e-9)


def test_a_queue_is_served_by_arrival_and_then_by_row() -> None:
    arrays = {
        "pools": {"a": 1},
        "throughput": np.ones((4, 1)),
        "tenant": np.zeros(4, int),
        "tenants": tenants("fifo"),
    }
    instance = Instance.from_arrays(**arrays, arrival=np.array([-1.0, -5.0, -9.0, -5.0]))
    assert reached(solve(instance)) == pytest.approx([0, 0, 1, 0], abs=1e-9)
    instance = Instance.from_arrays(
        **arrays | {"pools": {"a": 2}}, arrival=np.array([-1.0, -5.0, -9.0, -5.0])
    )
    assert reached(solve(instance)) == pytest.approx([0, 1, 1, 0], abs=1e-9)


def test_jobs_without_a_tenant_stand_beside_them() -> None:
    """A job alone rises at its weight 1, as the tenant of weight 1 does with all its jobs."""
    found = reached(solve(equal_jobs(1, [0, 0, -1], tenants("fairness"))))
    assert found == pytest.approx([0.25, 0.25, 0.5])


def test_many_queues_starve_and_the_loop_ends() -> None:
    given = tenants("fifo", "fifo", "fairness")
    instance = equal_jobs(2, [0] * 6 + [1] * 6 + [2] * 6, given)
    found = reached(solve(instance))
    assert found[[0, 6]] == pytest.approx([2 / 3, 2 / 3]) and found[12:].sum() == pytest.approx(
        2 / 3
    )
    assert np.abs(np.delete(found, [0, 6, *range(12, 18)])).max() <= 1e-9
    assert (found >= 0).all()


# --- extremes --------------------------------------------------------------------------------------------------------


def one_pool(weight: np.ndarray, gpus: int) -> np.ndarray:
    """Jobs of one GPU on one pool: min(1, p c), with c such that all GPUs are used."""
    order = np.argsort(-weight)
    for full in range(len(weight)):
        rest = weight[order[full:]]
        c = (gpus - full) / rest.sum()
        if rest[0] * c <= 1:
            return np.minimum(1.0, weight * c)
    return np.ones(len(weight))


@pytest.mark.parametrize(
    ("spread", "solver"), [(9, "highs"), (9, "auto"), (3, "clarabel"), (3, "glop")]
)
@pytest.mark.parametrize("seed", range(4))
def test_tiny_and_huge_weights(spread: int, solver: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs = int(random.integers(3, 9))
    gpus = int(random.integers(1, jobs))
    weight = 10.0 ** random.choice([-spread, 0, spread], jobs)
    instance = Instance.from_arrays(
        pools={"a": gpus}, throughput=np.full((jobs, 1), 3.0), weight=weight
    )
    assert reached(solve(instance, solver=solver)) == pytest.approx(
        one_pool(weight, gpus), abs=1e-8
    )


def test_tiny_and_huge_rates() -> None:
    case = random_case(2, 7, gangs=True, weights=True)
    expected = filled(case)
    case.rate = case.rate * 10.0 ** np.array([-9, -6, -3, 0, 3, 6, 9])[:, None]
    assert reached(solve(case)) == pytest.approx(expected, abs=1e-7)


def test_enough_for_all_is_one_stage() -> None:
    solution = solve(
        Instance.from_arrays(
            pools={"a": 9, "b": 9}, throughput=np.ones((9, 2)), weight=np.arange(1.0, 10)
        )
    )
    assert reached(solution) == pytest.approx(np.ones(9)) and len(solution.stages) == 1


def test_one_job_and_none() -> None:
    one = solve(Instance.from_arrays(pools={"a": 1}, throughput=[[2.0]]))
    assert one.objective == pytest.approx(1.0)
    none = optsched.solve(Instance.from_arrays(pools={"a": 1}, throughput=[[0.0]]), NAME)
    assert none.ok and [job for job, _ in none.unplaced] == ["j0"]


def test_agnostic_counts_time_only() -> None:
    rate = np.array([[5.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    instance = Instance.from_arrays(pools={"a": 1, "b": 1}, throughput=rate)
    assert reached(solve(instance, agnostic=True)) == pytest.approx([2 / 3, 2 / 3, 2 / 3])
    single = Instance.from_arrays(
        pools={"a": 1, "b": 1}, throughput=[[5.0, 0.0], [1.0, 0.0], [2.0, 1.0]]
    )
    assert reached(solve(single, agnostic=True)) == pytest.approx([0.5, 0.5, 1.0])
    assert reached(solve(single, agnostic="literal")) == pytest.approx([2 / 3, 2 / 3, 2 / 3])


def crowded(seed: int, jobs: int) -> Instance:
    """Jobs of eight workloads in the tenants of Gavel's setting: many columns have nearly the same reduced cost."""
    random = np.random.default_rng(seed)
    rate = random.lognormal(1, 1, (8, 1)) * np.array([6.0, 3.0, 1.0]) ** random.beta(2, 2, (8, 1))
    kind = random.integers(0, 8, jobs)
    return Instance.from_arrays(
        pools=dict.fromkeys("abc", jobs // 4), throughput=rate[kind],
        weight=random.choice([1.0, 5.0], jobs, p=[0.8, 0.2]), tenant=random.integers(0, 4, jobs),
        tenants=tenants("fairness", "fifo", "fairness", "fifo", weight=(1.0, 2.0, 3.0, 4.0)),
    )  # fmt: skip


def test_duals_that_are_not_sharp_hold_nobody_too_early() -> None:
    """An interior point leaves a little of its duals everywhere: levels were off by 5e-5 where all of that counted."""
    exact = reached(solve(crowded(324, 40), solver="highs"))
    assert reached(solve(crowded(324, 40), solver="clarabel")) == pytest.approx(exact, abs=1e-6)
    exact = reached(solve(crowded(285, 60), solver="glop"))
    assert reached(solve(crowded(285, 60), solver="clarabel")) == pytest.approx(exact, abs=1e-6)
    for seed in range(5):
        exact = reached(solve(crowded(seed, 60), solver="highs"))
        found = reached(solve(crowded(seed, 60), solver="prices"))
        assert found == pytest.approx(exact, abs=1e-6)


# --- stages ----------------------------------------------------------------------------------------------------------


def case_of_stages() -> Case:
    """Three stages."""
    return random_case(271, 7, zeros=True, weights=True)


@pytest.mark.parametrize(("solver", "lacks"), [("scip", "duals"), ("cp-sat", "continuous")])
def test_a_solver_that_cannot_fill_is_refused(solver: str, lacks: str) -> None:
    with pytest.raises(UnsuitableSolver, match=f"solver {solver} lacks '{lacks}'"):
        optsched.solve("@quickstart", "water-filling", solver=solver)


def test_stages_reuse_one_session() -> None:
    solution = solve(case_of_stages(), solver="highs")
    assert len(solution.stages) == 3
    assert solution.solver.rebuilt == ()
    assert solve(case_of_stages(), solver="highs-ipm").solver.rebuilt == ()


@pytest.mark.parametrize("solver", ["clarabel", "glop"])
def test_what_is_rebuilt_is_named(solver: str) -> None:
    solution = solve(case_of_stages(), solver=solver)
    names = {"coefficients", "column bounds", "row bounds", "cost"}
    assert set(solution.solver.rebuilt) == names
    assert (
        solution.solver.rebuilt.count("cost") == 1
    )  # the last program alone has another objective


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policies", [(), ("fairness", "fifo", "fifo")])
def test_stages_are_counted_by_full_pools_and_not_by_jobs(
    seed: int, policies: tuple[str, ...]
) -> None:
    """Beside pools that are full, jobs rise to what the others give them: all in one stage."""
    random = np.random.default_rng(seed)
    jobs, pools = 60, {"a": 3, "b": 6, "c": 30, "d": 40 + 100 * (seed % 2)}
    instance = Instance.from_arrays(
        pools=pools,
        throughput=random.lognormal(0, 1, (jobs, len(pools))),
        weight=random.choice([1.0, 2.0], jobs),
        tenant=random.integers(0, len(policies), jobs) if policies else None,
        tenants=tenants(*policies),
    )
    solution = solve(instance)
    assert 2 <= len(solution.stages) <= len(pools) + 1


def test_every_stage_holds_somebody() -> None:
    solution = solve(random_case(11, 8, weights=True, tenants=True, pairs=True))
    assert len(solution.stages) <= 8
    values = [stage.value for stage in solution.stages]
    assert values == sorted(values) and all(stage.name == "filling" for stage in solution.stages)


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a higher value": (lambda stage: stage.update(value=stage["value"] * 1.01), r"stages\[0\].value: found"),
    "a lower value": (lambda stage: stage.update(value=stage["value"] * 0.99), r"stages\[0\].value: found"),
    "another bound": (lambda stage: stage.update(bound=stage["bound"] * 1.01), r"stages\[0\].bound: found"),
    "no bound": (lambda stage: stage.update(bound=None), r"stages\[0\].bound"),
    "another name": (lambda stage: stage.update(name="rising"), r"stages\[0\].name: found \"rising\""),
    "other duals": (
        lambda stage: stage["duals"].update(levels=[2 * y for y in stage["duals"]["levels"]]), r"stages\[0\].bound",
    ),
    "a block is missing": (lambda stage: stage["duals"].pop("time"), r"stages\[0\]: its duals are not those"),
    "a short block": (lambda stage: stage["duals"]["time"].pop(), r"stages\[0\]: its duals are not those"),
    "a part of a segment": (lambda stage: stage["kept"].update(segment=[0.3]), r"stages\[0\]: nobody rises there"),
    "a dual of the wrong sign": (
        lambda stage: stage["duals"]["time"].__setitem__(0, -1.0),
        r"stages\[0\]: some of its duals have a sign that their rows cannot have",
    ),
    "another segment": (lambda stage: stage["kept"].update(segment=[99.0]), r"stages\[0\]: nobody rises there"),
    "a large slack": (lambda stage: stage["kept"].update(slack=[0.1]), r"stages\[0\]: nobody rises there"),
    "two slacks": (lambda stage: stage["kept"].update(slack=[1e-10] * 2), r"stages\[0\].kept: expected one number"),
    "nothing kept": (lambda stage: stage.update(kept={}), r"stages\[0\].kept: found \[\]"),
}  # fmt: skip


@pytest.mark.parametrize("how", TAMPERED)
def test_a_tampered_stage_is_refused(how: str) -> None:
    import re

    tamper, words = TAMPERED[how]
    case = case_of_stages()
    instance = case.instance()
    document = copy.deepcopy(optsched.solve(instance, NAME).to_document())
    tamper(document["stages"][0])
    report = optsched.verify(instance, document)
    assert not report.ok and re.search(words, str(report)), report


def test_stages_that_are_missing_swapped_or_too_many_are_refused() -> None:
    instance = case_of_stages().instance()
    document = optsched.solve(instance, NAME).to_document()
    stages = document["stages"]
    for other in (None, [], stages[:-1], stages[::-1], [*stages, stages[-1]]):
        report = optsched.verify(instance, document | {"stages": other})
        assert not report.ok and "stages" in str(report), (other, report)


def test_stages_without_duals_are_solved_again() -> None:
    instance = case_of_stages().instance()
    document = copy.deepcopy(optsched.solve(instance, NAME).to_document())
    for stage in document["stages"]:
        stage["duals"] = None
    assert optsched.verify(instance, document).ok
    document["allocation"][0]["fraction"] *= 0.9
    assert not optsched.verify(instance, document).ok


# --- solvers that stop, lie or raise ---------------------------------------------------------------------------------


class After:
    """Lets so many runs of HiGHS pass, and then does something else."""

    def __init__(self, runs: int, then: Callable[[Values], Values]) -> None:
        self.left, self.then, self.real = runs, then, HighsSession.run

    def __call__(self, session: HighsSession, limits: Limits) -> Values:
        values = self.real(session, limits)
        if all(block.name != "levels" for block in session.arrays.rows):
            return values  # the analysis of a claim that something is infeasible
        self.left -= 1
        return values if self.left >= 0 else self.then(values)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(HighsSession, "run", lambda session, limits: self(session, limits))


def runs_of_highs(monkeypatch: pytest.MonkeyPatch) -> int:
    with monkeypatch.context() as patch:
        counter = After(10**6, lambda values: values)
        counter.install(patch)
        optsched.solve(case_of_stages().instance(), NAME, solver="highs")
    return 10**6 - counter.left


def crash(values: Values) -> Values:
    raise SolverCrashed("HiGHS raised RuntimeError: boom")


def without_duals(values: Values) -> Values:
    return replace(values, y=None)


def denied(values: Values) -> Values:
    return replace(values, x=None, y=None, objective=None, termination=Termination.INFEASIBLE)


def no_number(values: Values) -> Values:
    return replace(values, y=None if values.y is None else np.full_like(values.y, np.nan))


def zero_duals(values: Values) -> Values:
    return replace(values, y=None if values.y is None else np.zeros_like(values.y))


def test_a_solver_that_raises_in_any_run_raises_or_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total, best = runs_of_highs(monkeypatch), optsched.solve(case_of_stages().instance(), NAME)
    assert total >= 4
    for after in range(total):
        with monkeypatch.context() as patch:
            After(after, crash).install(patch)
            with pytest.raises(SolverCrashed, match="boom"):
                optsched.solve(case_of_stages().instance(), NAME, solver="highs")
            solution = optsched.solve(case_of_stages().instance(), NAME)
            assert solution.status == "optimal" and solution.solver.attempts[0].name == "highs"
            assert solution.objective == pytest.approx(best.objective, rel=1e-6)


LIES = {
    without_duals: "gave no duals, and filling goes by them",
    no_number: "returned no duals of 17 finite numbers",
    zero_duals: "gave duals that do not tell who holds the level",
    denied: "claims that a feasible program is infeasible",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_solver_that_lies_in_a_stage_is_named(
    lie: Callable[[Values], Values], monkeypatch: pytest.MonkeyPatch
) -> None:
    for after in (0, 2):
        with monkeypatch.context() as patch:
            After(after, lie).install(patch)
            with pytest.raises(SolverCrashed, match=f"solver highs {LIES[lie]}"):
                optsched.solve(case_of_stages().instance(), NAME, solver="highs")


def stops_short(values: Values) -> Values:
    """The duals are right, the point is almost as good as they prove."""
    return replace(values, x=None if values.x is None else values.x * (1 - 1e-5))


def test_a_stage_whose_duals_prove_another_level_is_not_optimal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its level would be refused by verify; the levels of the stages before are kept."""
    instance, found = case_of_stages().instance(), Counter[str]()
    for after in range(runs_of_highs(monkeypatch)):
        with monkeypatch.context() as patch:
            After(after, stops_short).install(patch)
            try:
                solution = optsched.solve(instance, NAME, solver="highs")
            except SolverCrashed:  # the end of a segment was missed, where no duals hold anybody
                found["crashed"] += 1
                continue
            report = optsched.verify(instance, solution.to_document())
            # What the last program lacks, the solution's own certificate says.
            assert report.ok is solution.ok, report
            found[f"{solution.status}, {'certified' if solution.ok else 'not certified'}"] += 1
    assert found["feasible, certified"] > 0, found


def test_a_stage_that_failed_leaves_no_slack_behind() -> None:
    """CBC misses a stage of rates from 1e-4 to 1e4, whose floors were loosened before it gave up."""
    rates: list[tuple[str | None, float, dict[str, float]]] = [
        ("B", 1.0, {"q": 1e4}),
        ("A", 1.0, {"p": 1.0, "q": 1.0}),
        ("A", 1.0, {"p": 1.0, "q": 1e4}),
        ("B", 1e-3, {"p": 1.0, "q": 1e-4}),
        (None, 1.0, {"q": 3.0}),
        (None, 1.0, {"q": 1.0}),
    ]
    pools = [
        {"name": "p", "nodes": 1, "gpus_per_node": 2},
        {"name": "q", "nodes": 1, "gpus_per_node": 3},
    ]
    document = {
        "format": "optsched-instance/1",
        "tenants": [{"name": "A", "weight": 2}, {"name": "B"}],
        "cluster": {"pools": pools},
        "jobs": [
            {"id": f"j{n}", "tenant": tenant, "weight": weight, "throughput": rate}
            for n, (tenant, weight, rate) in enumerate(rates)
        ],
    }
    solution = optsched.solve(document, NAME, solver="cbc")
    report = optsched.verify(optsched.load(document), solution.to_document())
    assert report.ok, report


def test_a_limit_midway_leaves_a_feasible_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocation keeps the levels of the stages before, and its file is right."""
    instance = case_of_stages().instance()
    best = optsched.solve(instance, NAME, solver="highs")
    total, seen = runs_of_highs(monkeypatch), set()
    for termination in (Termination.TIME_LIMIT, Termination.WORK_LIMIT):
        for after in range(total):
            with monkeypatch.context() as patch:
                After(after, lambda values: replace(values, termination=termination)).install(patch)  # noqa: B023
                solution = optsched.solve(instance, NAME, solver="highs")
            seen.add(solution.status)
            assert solution.ok and solution.termination == termination
            assert solution.reproducible == (termination is Termination.WORK_LIMIT)
            report = optsched.verify(instance, solution.to_document())
            assert report.ok, report
            if solution.status == "feasible":
                levels = reached(solution) / case_of_stages().weight
                assert levels.min() <= (reached(best) / case_of_stages().weight).min() + 1e-9
    assert seen <= {"feasible", "optimal"}


def test_a_stopped_run_says_what_its_bound_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The total depends on the levels of all stages; the first stage proves the smallest level, if it ended."""
    instance, seen = case_of_stages().instance(), set()
    for after in range(runs_of_highs(monkeypatch)):
        with monkeypatch.context() as patch:
            After(
                after, lambda values: replace(values, termination=Termination.WORK_LIMIT)
            ).install(patch)
            solution = optsched.solve(instance, NAME, solver="highs")
        notes = [note for note in solution.notes if note.startswith("filling was stopped")]
        assert solution.bound is not None and solution.bound >= solution.objective
        if not notes:
            continue
        (note,) = notes
        proved = (
            f"not all jobs can rise beyond {solution.stages[0].bound:.6g}"
            if solution.stages
            else "no stage ended"
        )
        assert proved in note
        seen.add(bool(solution.stages))
        placed = optsched.place(solution, rows=[]) if after == 0 else solution
        assert note in placed.notes and note in placed.to_document()["notes"]
    assert seen == {False, True}


def test_limits_of_time_and_work_on_a_large_instance() -> None:
    random = np.random.default_rng(0)
    instance = Instance.from_arrays(
        pools={"a": 40, "b": 60, "c": 50},
        throughput=random.lognormal(0, 1, (300, 3)),
        weight=random.uniform(1, 5, 300),
    )
    for limit in (
        {"time_limit": 1e-3},
        {"time_limit": 0.15},
        {"work_limit": 40},
        {"work_limit": 400},
    ):
        solution = optsched.solve(instance, NAME, solver="highs", **limit)
        assert solution.ok and solution.status in ("limit", "feasible", "optimal")
        assert optsched.verify(instance, solution.to_document()).ok
        if "work_limit" in limit:
            again = optsched.solve(instance, NAME, solver="highs", **limit)
            assert solution.reproducible and again.objective == solution.objective


def test_a_filling_that_was_stopped_is_no_optimum_though_everybody_is_at_its_top(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = optsched.Instance.from_arrays(
        pools={"a": 16}, throughput=np.arange(1.0, 6.0)[:, np.newaxis]
    )
    best = optsched.solve(instance, NAME, solver="highs")
    assert best.status == "optimal" and best.stages
    After(0, lambda values: replace(values, termination=Termination.TIME_LIMIT)).install(
        monkeypatch
    )
    stopped = optsched.solve(instance, NAME, solver="highs")
    assert stopped.objective == stopped.bound == best.objective
    assert stopped.status == "feasible" and not stopped.stages
    assert optsched.verify(instance, stopped).ok
