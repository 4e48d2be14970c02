"""R||Cmax: both programs against known optima, each other and brute force; gangs, arrivals and orders of jobs."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from beside import SHARED, needs
from plan_instances import machines, made, random_unrelated, verified

import optsched
from formulations.makespan_unrelated import MakespanUnrelated
from optsched.errors import SolverUnavailable, UsageError
from optsched.solution import Termination, Values
from optsched.solvers import HighsSession

pytestmark = pytest.mark.oracle

FORMS = SHARED / "oracles" / "forms" / "goldens.json"
REFERENCE = [[6, 3], [4, 8], [5, 5], [9, 2]]


def solve(instance: optsched.Instance, **options: object) -> optsched.Solution:
    return verified(optsched.solve(instance, "makespan-unrelated", **options))


@pytest.mark.parametrize("program", ["assignment", "timeline"])
@pytest.mark.parametrize("solver", ["auto", "highs"])
def test_reference(program: str, solver: str) -> None:
    solution = solve(machines(REFERENCE), program=program, solver=solver, prove=True)
    assert (solution.objective, solution.bound, solution.certificate.proof) == (
        9.0,
        9.0,
        "cross-checked",
    )
    assert solution.schedule.end.max() == 9.0


@needs(FORMS)
def test_golden_value() -> None:
    golden = json.loads(FORMS.read_text())["rcmax"]
    for program in ("assignment", "timeline"):
        assert solve(machines(golden["proc"]), program=program).objective == pytest.approx(
            golden["opt"]
        )


@pytest.mark.parametrize("seed", range(8))
def test_brute_force(seed: int) -> None:
    p = np.array(random_unrelated(seed, 6, 3, 1, 20))
    best = min(
        max(sum(p[j, i] for j, at in enumerate(choice) if at == i) for i in range(3))
        for choice in itertools.product(range(3), repeat=6)
    )
    for program in ("assignment", "timeline"):
        assert solve(machines(p.tolist()), program=program).objective == pytest.approx(best)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.study) for seed in (2, 3))]
)
@pytest.mark.parametrize(("jobs", "count"), [(15, 3), (20, 4), (30, 5)])
def test_milp_and_timeline_agree_and_are_cross_checked(seed: int, jobs: int, count: int) -> None:
    instance = machines(random_unrelated(seed, jobs, count))
    by_milp, by_timeline = (
        solve(instance, program=name, prove=True) for name in ("assignment", "timeline")
    )
    assert by_milp.objective == by_timeline.objective == by_milp.bound == by_timeline.bound
    assert {by_milp.certificate.proof, by_timeline.certificate.proof} == {"cross-checked"}
    assert by_milp.solver.name == "highs" and by_timeline.solver.name == "cp-sat"


def test_equal_jobs_are_counted_and_named() -> None:
    """Six equal jobs on a pool of 2 GPUs and a slower one of 1: 2 x 2 at 3 s and 1 at 6 s, one more at 3."""
    pools = [
        {"name": "fast", "nodes": 1, "gpus_per_node": 2},
        {"name": "slow", "nodes": 1, "gpus_per_node": 1},
    ]
    jobs = [
        {
            "id": f"j{i}",
            "options": [
                {"pool": pool, "gpus": 1, "duration": d} for pool, d in (("fast", 3), ("slow", 6))
            ],
        }
        for i in range(6)
    ]
    instance = made(cluster={"pools": pools}, jobs=jobs)
    by_class, by_job = solve(instance), solve(instance, classes=False)
    assert len(by_class.allocation.classes) == 1 and len(by_job.allocation.classes) == 6
    assert by_class.objective == by_job.objective == 9.0
    running = {row["job"] for row in by_class.allocation.to_records()}
    assert running == {row["job"] for row in by_class.schedule.to_records() if row["start"] == 0}


def test_gangs_share_a_pool_without_overlap() -> None:
    """Gangs 4, 2, 2, 1 of 2, 3, 3, 5 s on 4 GPUs: the 4 alone, then 2 + 2, and the 1 beside nothing: 2 + 5 or more."""
    pools = [{"name": "v100", "nodes": 1, "gpus_per_node": 4}]
    rows = [(4, 2), (2, 3), (2, 3), (1, 5)]
    jobs = [
        {"id": f"j{i}", "options": [{"pool": "v100", "gpus": g, "duration": d}]}
        for i, (g, d) in enumerate(rows)
    ]
    instance = made(cluster={"pools": pools}, jobs=jobs)
    solution = solve(instance, prove=True)
    assert solution.objective == 8.0 and solution.solver.name == "cp-sat"
    assert solve(instance, solver="highs").objective == 8.0
    with pytest.raises(
        UsageError,
        match=r"program=assignment: .* takes more than one unit .*; use program=timeline",
    ):
        solve(instance, program="assignment")


def test_arrivals_orders_and_budgets() -> None:
    pools = [
        {"name": "a", "nodes": 1, "gpus_per_node": 1},
        {"name": "b", "nodes": 1, "gpus_per_node": 1},
    ]
    jobs = [
        {"id": "first", "options": [{"pool": "a", "gpus": 1, "duration": 4}]},
        {"id": "second", "after": ["first"], "options": [{"pool": "b", "gpus": 1, "duration": 2, "uses": {"budget": 3}},
                                                          {"pool": "a", "gpus": 1, "duration": 5}]},
        {"id": "late", "arrival": 10, "options": [{"pool": "b", "gpus": 1, "duration": 1}]},
    ]  # fmt: skip
    cluster = {
        "pools": pools,
        "resources": [{"name": "budget", "kind": "consumable", "capacity": 3}],
    }
    assert solve(made(cluster=cluster, jobs=jobs)).objective == 11.0  # the late one ends it
    poor = {"pools": pools, "resources": [{"name": "budget", "kind": "consumable", "capacity": 2}]}
    solution = solve(made(cluster=poor, jobs=jobs[:2]))
    assert solution.objective == 9.0  # on a: 4 + 5
    assert [row["start"] for row in solution.schedule.to_records()] == [0.0, 4.0]
    assert solve(made(cluster=cluster, jobs=jobs[:2], now=100)).schedule.start.tolist() == [
        100.0,
        104.0,
    ]


def spending(uses: list[dict[str, int]], count: int, **budgets: int) -> optsched.Instance:
    """Equal jobs whose options use up some of the budgets."""
    options = [{"pool": "a", "gpus": 1, "duration": 1, "uses": amounts} for amounts in uses]
    resources = [
        {"name": name, "kind": "consumable", "capacity": amount} for name, amount in budgets.items()
    ]
    pools = [{"name": "a", "nodes": 1, "gpus_per_node": 1}]
    return made(
        cluster={"pools": pools, "resources": resources},
        jobs=[{"id": f"j{number}", "options": options} for number in range(count)],
    )


def test_a_budget_that_no_choice_keeps_is_shown_by_duals() -> None:
    solution = solve(spending([{"money": 3}, {"money": 2}], 2, money=3))
    assert (solution.status, solution.certificate.proof) == ("infeasible", "dual")
    assert [conflict.words for conflict in solution.conflicts] == [
        "resource money has 3 to use up",
        "job j0 must run in one of its configurations",
        "job j1 must run in one of its configurations",
    ]
    richer = spending([{"money": 3}, {"money": 2}], 2, money=4)
    assert "status" in str(optsched.verify(richer, solution.to_document()))


def test_budgets_that_only_parts_of_jobs_keep_are_cross_checked() -> None:
    """Half of each way uses 7.5 of both; whole ways use 9 of one of them."""
    ways = [{"money": 1, "energy": 4}, {"money": 4, "energy": 1}]
    solution = solve(spending(ways, 3, money=8, energy=8))
    assert (solution.status, solution.certificate.proof) == ("infeasible", "cross-checked")
    assert len(solution.conflicts) == 5
    assert solve(spending(ways, 3, money=9, energy=8)).objective == 3.0


def test_uses_with_a_common_divisor_prove_more() -> None:
    """Of 9 units pairs use 8: half of each way uses more."""
    ways = [{"money": 2, "energy": 4}, {"money": 4, "energy": 2}]
    solution = solve(spending(ways, 3, money=9, energy=9))
    assert (solution.status, solution.certificate.proof) == ("infeasible", "dual")
    assert solve(spending(ways, 3, money=10, energy=9)).objective == 3.0


def test_a_solver_of_timelines_alone_is_told_of_the_timeline() -> None:
    told = "solver cp-sat lacks 'continuous', .* with -O program=timeline it needs no such columns"
    with pytest.raises(SolverUnavailable, match=told):
        optsched.solve(machines(REFERENCE), "makespan-unrelated", solver="cp-sat")
    assert solve(machines(REFERENCE), solver="cp-sat", program="timeline").objective == 9.0


def test_hopeless_durations_do_not_make_the_unit_coarse() -> None:
    slow = 10**9
    instance = machines([[1, slow]] * 4)
    assert solve(instance, program="timeline").objective == 4.0
    # One after the other on the first machine all end before the slow one has done a job
    odd = machines([[np.pi, slow], [np.e, 2.0]])
    assert solve(odd, program="timeline").objective == pytest.approx(np.pi, rel=1e-3)


def test_a_coarse_unit_rounds_up() -> None:
    instance = machines([[2.5], [2.5]])
    assert solve(instance, program="timeline").objective == 5.0
    assert solve(instance, program="timeline", unit=2.0).objective == 8.0
    with pytest.raises(UsageError, match="unit is an option of program=timeline"):
        solve(instance, unit=2.0)
    odd = machines([[np.pi], [np.e]])
    assert solve(odd, program="timeline").objective == pytest.approx(np.pi + np.e, rel=1e-3)
    assert solve(odd).objective == pytest.approx(np.pi + np.e, rel=1e-12)


def test_a_job_that_fits_nowhere_is_named() -> None:
    jobs = [
        {
            "id": "huge",
            "options": [{"pool": "m0", "gpus": 1, "duration": 1, "uses": {"licence": 3}}],
        }
    ]
    cluster = {
        "pools": [{"name": "m0", "nodes": 1, "gpus_per_node": 1}], "resources": [{"name": "licence", "capacity": 2}],
    }  # fmt: skip
    solution = verified(optsched.solve(made(cluster=cluster, jobs=jobs), "makespan-unrelated"))
    assert solution.status == "infeasible"
    assert [conflict.words for conflict in solution.conflicts] == [
        "job huge needs more than the whole capacity in every configuration"
    ]


@pytest.mark.clock
def test_stopped_by_the_clock_it_returns_the_list_schedule() -> None:
    instance = machines(random_unrelated(5, 300, 12))
    solution = verified(
        optsched.solve(instance, "makespan-unrelated", program="timeline", time_limit=0.05)
    )
    assert solution.status in ("feasible", "optimal") and solution.certificate.ok
    assert solution.bound <= solution.objective


@pytest.mark.parametrize("program", ["assignment", "timeline"])
def test_without_a_run_of_a_solver_there_is_a_point_with_a_bound(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Longest job first, each where it ends first; and the work on all machines together."""
    instance = machines(random_unrelated(5, 40, 4))
    best = solve(instance, program="assignment")
    monkeypatch.setattr(HighsSession, "run", lambda self, limits: Values(Termination.TIME_LIMIT))
    solution = solve(instance, program=program, time_limit=1e-6)
    assert solution.status == "feasible" and solution.ok
    assert best.objective <= solution.objective <= 1.2 * best.objective
    assert 0.95 * best.objective <= solution.bound <= best.objective


def test_no_job() -> None:
    instance = made(cluster={"pools": [{"name": "a", "nodes": 1, "gpus_per_node": 1}]}, jobs=[])
    solution = solve(instance)
    assert solution.objective == 0.0 and len(solution.schedule) == 0


TAMPERED = {
    "earlier": (lambda row: moved(row, -1.0), "starts before now|release of job"),
    "longer": (lambda row: row | {"end": row["end"] + 1}, "schedule: job .* runs"),
    "empty": (
        lambda row: row | {"end": row["start"]},
        r"schedule\[0\].end: found .*, expected a time after",
    ),
    "option": (lambda row: row | {"option": 7}, r"schedule\[0\].option"),
    "nobody": (lambda row: row | {"job": "nobody"}, r"schedule\[0\].job: found"),
    "later": (
        lambda row: moved(row, 2.0),
        "beyond its capacity|capacity of m|schedule runs it now",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
@pytest.mark.parametrize("program", ["assignment", "timeline"])
def test_a_tampered_schedule_is_refused(program: str, name: str) -> None:
    change, told = TAMPERED[name]
    solution = optsched.solve(machines(REFERENCE), "makespan-unrelated", program=program)
    document = solution.to_document()
    document["schedule"][0] = change(document["schedule"][0])
    report = optsched.verify(solution.instance, document)
    assert not report.ok and re.search(told, str(report)), report


def moved(row: dict, by: float) -> dict:
    return row | {"start": row["start"] + by, "end": row["end"] + by}


def test_other_tampering() -> None:
    solution = optsched.solve(machines(REFERENCE), "makespan-unrelated", prove=True)
    good = solution.to_document()
    changes = {
        "objective": {"objective": 8.0}, "bound": {"bound": 9.5, "gap": 0.5 / 9}, "schedule": {"schedule": None},
        "certificate.proof": {"certificate": good["certificate"] | {"proof": "dual"}},
        "allocation": {"allocation": []}, "prices": {"prices": {"m0": 1.0}}, "status": {"status": "feasible"},
        "throughput.j0": {"throughput": good["throughput"] | {"j0": 77.0}},
    }  # fmt: skip
    for name, change in changes.items():
        report = optsched.verify(solution.instance, good | change)
        assert any(finding.field.startswith(name) for finding in report.findings), (name, report)
    missing = dict(good)
    missing["schedule"] = good["schedule"][1:]
    assert any(
        "expected once" in str(finding)
        for finding in optsched.verify(solution.instance, missing).findings
    )


@pytest.mark.parametrize("program", ["assignment", "timeline"])
def test_a_schedule_in_a_configuration_that_does_not_fit_is_refused(program: str) -> None:
    ways = [
        {"pool": "m0", "gpus": 1, "duration": 2},
        {"pool": "m0", "gpus": 1, "duration": 1, "uses": {"licence": 3}},
    ]
    cluster = {
        "pools": [{"name": "m0", "nodes": 1, "gpus_per_node": 1}], "resources": [{"name": "licence", "capacity": 2}],
    }  # fmt: skip
    instance = made(cluster=cluster, jobs=[{"id": "one", "options": ways}])
    document = solve(instance, program="timeline").to_document()
    document["options"]["program"] = program
    document["schedule"][0] |= {"option": 1, "end": 1.0}
    report = optsched.verify(instance, document)
    assert any("configuration that does not fit" in str(found) for found in report.findings)


def test_a_schedule_in_a_file_of_fractions_is_refused() -> None:
    solution = optsched.solve("@quickstart")
    report = optsched.verify("@quickstart", solution.to_document() | {"schedule": []})
    assert [finding.field for finding in report.findings] == ["schedule"]


def test_a_lying_solver_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.solvers import CpSat

    honest = CpSat.solve_timeline

    def late(self: CpSat, program: object, limits: object, start: object = None) -> object:
        values = honest(self, program, limits, start)
        return replace(values, bound=values.bound + 2, objective=values.objective + 2)

    monkeypatch.setattr(CpSat, "solve_timeline", late)
    solution = optsched.solve(
        machines(REFERENCE), "makespan-unrelated", program="timeline", solver="cp-sat"
    )
    assert (solution.ok, solution.status, solution.objective, solution.bound) == (
        True,
        "feasible",
        9.0,
        None,
    )
    assert "claims that nothing is better than 11" in solution.solver.attempts[0].outcome


def test_a_configuration_that_takes_far_too_long_does_not_set_the_scale() -> None:
    """Beside 1e24 s a makespan of 1e6 s was rounding, and its bound of 0 counted as closed."""
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 3} for name in "vk"]
    jobs = [
        {"id": "a", "steps": 1e-300, "throughput": {"v": 1e-12}},
        {"id": "b", "steps": 1e15, "throughput": {"v": 1e9, "k": 1e-9}},
    ]
    instance = made(cluster={"pools": pools}, jobs=jobs)
    solution = solve(instance)
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(1e6) == solution.bound
    assert solution.gap == pytest.approx(0.0, abs=1e-6)


def unlike() -> optsched.Instance:
    """Durations of 4e-5 s beside 42 s: within the tolerance of whole numbers of HiGHS and SCIP."""
    rates = [
        (1.3030580408481998e-05, 33.96455124107598), (0.01026622763205285, 2.674637583087546),
        (20402.3535766795, 118.40180266291598), (8.812189441456432e-05, 15.211128165886432),
        (0.023635984356690273, 0.0035842601157224413), (5.4699052061834195, 1.6748117511466154e-05),
    ]  # fmt: skip
    return made(
        cluster={"pools": [{"name": name, "nodes": 1, "gpus_per_node": 1} for name in "vk"]},
        jobs=[
            {"id": f"j{row}", "steps": 1.0, "throughput": dict(zip("vk", pair, strict=True))}
            for row, pair in enumerate(rates)
        ],
    )


@pytest.fixture
def without_known_point(monkeypatch: pytest.MonkeyPatch) -> None:
    build = MakespanUnrelated.build
    monkeypatch.setattr(
        MakespanUnrelated, "build", lambda self, C: replace(build(self, C), known=lambda: None)
    )


@pytest.mark.usefixtures("without_known_point")
def test_an_optimum_that_does_not_certify_is_tried_on_the_next_solver() -> None:
    solution = solve(unlike())
    assert solution.status == "optimal" and solution.ok
    assert solution.objective == pytest.approx(42.491189731451044, rel=1e-9)
    assert [name for name, _ in solution.solver.attempts] == ["highs", "scip", "cbc"]


@pytest.mark.usefixtures("without_known_point")
def test_without_a_solver_that_certifies_the_point_is_feasible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "optsched.solving.runs.others", lambda first, **kind: ("scip",) if first == "highs" else ()
    )
    solution = solve(unlike())
    assert solution.status == "feasible" and solution.ok
    assert 1e-6 < solution.gap < 1e-5


def test_jobs_follow_one_another_however_late_it_is() -> None:
    """At 1e15 s a part in 1e9 is 11 days: jobs of a machine do not run side by side for that."""
    jobs = [{"id": name, "steps": 1000.0, "throughput": {"v": 1.0}} for name in "ab"]
    pools = [{"name": "v", "nodes": 2, "gpus_per_node": 4}]
    solution = solve(made(cluster={"pools": pools}, jobs=jobs, now=1e15))
    assert solution.status == "optimal" and solution.ok and solution.objective == 1000.0
