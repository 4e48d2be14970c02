"""`--prove`: what only a solver vouches for is tried again, and a refuted bound is never called proven."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from documents import instance_document
from project_files import section_of

import optsched
from optsched.instance import Instance
from optsched.program import LinearArrays, LinearProgram, TimelineProgram

# Private names: single strategies, without the engine that chooses them
from optsched.program.integers import step_of
from optsched.registry import load_solver
from optsched.solution import PointStatus, Termination, Values
from optsched.solvers import HighsSession, Limits
from optsched.solving import Engine
from optsched.solving.proof import cut_off

sys.path.insert(0, str(Path(__file__).parents[1] / "formulations"))
from plan_instances import machines, random_unrelated

pytestmark = pytest.mark.property

PROJECTS = SHARED / "data" / "orlib" / "mmrcpsp"


def project(path: Path) -> Instance:
    """A multi-mode project of PSPLIB as an instance: renewable and consumable resources, options, predecessors."""
    section = partial(section_of, path.read_text().splitlines())
    modes: dict[int, list[list[int]]] = {}
    job = 0
    for row in section("REQUESTS/DURATIONS"):
        job, rest = (row[0], row[1:]) if len(row) == 7 else (job, row)
        modes.setdefault(job, []).append(rest[1:])
    after: dict[int, list[str]] = {}
    for a, _, _, *successors in section("PRECEDENCE RELATIONS"):
        for b in successors:
            after.setdefault(b, []).extend([f"j{a}"] if a > 1 else [])
    names = ("R1", "R2", "N1", "N2")
    (capacity,) = section("RESOURCEAVAILABILITIES")
    kinds = ("renewable", "renewable", "consumable", "consumable")
    return Instance.from_document(
        instance_document(
            {"unused": 1},
            [
                {
                    "id": f"j{number}",
                    "after": after.get(number, []),
                    "options": [
                        {
                            "duration": length,
                            "uses": {n: u for n, u in zip(names, uses, strict=True) if u},
                        }
                        for length, *uses in listed
                    ],
                }
                for number, listed in modes.items()
                if 1 < number < max(modes)
            ],
            resources=[
                {"name": name, "kind": kind, "capacity": amount}
                for name, kind, amount in zip(names, kinds, capacity, strict=True)
            ],
            name=path.stem,
        )
    )


@needs(PROJECTS)
@pytest.mark.parametrize(("name", "best"), [("j104_1", 27), ("j1040_1", 19), ("j1010_1", None)])
@pytest.mark.parametrize("level", [1, 2])
def test_a_wrong_proof_of_cp_sat_is_never_reported(name: str, best: int | None, level: int) -> None:
    instance = project(PROJECTS / "j10" / f"{name}.mm")
    options = {"linearization_level": level}
    claimed = optsched.solve(
        instance, "makespan-unrelated", solver="cp-sat", solver_options=options
    )
    assert claimed.certificate.proof == "claimed"
    solution = optsched.solve(
        instance, "makespan-unrelated", solver="cp-sat", solver_options=options, prove=True
    )
    assert solution.certificate.ok and solution.certificate.proof == "cross-checked"
    assert best is None or solution.objective == best
    assert solution.objective == solution.bound <= claimed.objective
    if solution.objective < claimed.objective:
        assert f"cp-sat claimed that {claimed.objective:g} is optimal" in " ".join(
            solution.solver.rebuilt
        )
    assert optsched.verify(instance, solution.to_document()).ok


def plain_model(program: TimelineProgram) -> Values:
    """The model that anybody writes first, with the default search: CP-SAT 9.15 calls 28 optimal on j104_1."""
    from ortools.sat.python import cp_model

    longest = np.zeros(len(program), np.int64)
    np.maximum.at(longest, program.activity, program.duration)
    model, horizon = cp_model.CpModel(), int(longest.sum())
    starts, ends, intervals, chosen = [], [], [], []
    for a in range(len(program)):
        start, end = (model.new_int_var(0, horizon, f"{name}{a}") for name in ("s", "e"))
        starts.append(start)
        ends.append(end)
        modes = range(int(program.first_mode[a]), int(program.first_mode[a + 1]))
        literals = [model.new_bool_var(f"l{mode}") for mode in modes]
        for mode, literal in zip(modes, literals, strict=True):
            length = int(program.duration[mode])
            intervals.append(
                model.new_optional_interval_var(start, length, end, literal, f"i{mode}")
            )
        model.add_exactly_one(literals)
        chosen += literals
    uses, spends = (part.toarray().astype(int) for part in (program.usage, program.budget_usage))
    for row, capacity in zip(uses, program.capacity.tolist(), strict=True):
        some = np.flatnonzero(row).tolist()
        model.add_cumulative(
            [intervals[mode] for mode in some], [int(row[mode]) for mode in some], capacity
        )
    for row, limit in zip(spends, program.budget.tolist(), strict=True):
        model.add(sum(int(u) * literal for u, literal in zip(row, chosen, strict=True)) <= limit)
    for a, b in program.precedence.tolist():
        model.add(ends[a] <= starts[b])
    makespan = model.new_int_var(0, horizon, "C")
    model.add_max_equality(makespan, ends)
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    mode = np.flatnonzero([solver.value(literal) for literal in chosen])
    x = np.concatenate([[solver.value(start) for start in starts], mode]).astype(float)
    return Values(
        Termination.OPTIMAL, primal=PointStatus.FEASIBLE, x=x, objective=solver.objective_value,
        bound=solver.best_objective_bound,
    )  # fmt: skip


@needs(PROJECTS)
def test_the_known_wrong_proof_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.solvers import CpSat

    honest, claims = CpSat.solve_timeline, []

    def plain(self: CpSat, program: TimelineProgram, limits: Limits, start: Any = None) -> Values:
        if claims:
            return honest(self, program, limits, start)
        claims.append(plain_model(program))
        return claims[0]

    monkeypatch.setattr(CpSat, "solve_timeline", plain)
    instance = project(PROJECTS / "j10" / "j104_1.mm")
    solution = optsched.solve(instance, "makespan-unrelated", solver="cp-sat", prove=True)
    assert (solution.objective, solution.bound, solution.certificate.proof) == (
        27.0,
        27.0,
        "cross-checked",
    )
    if claims[0].objective != 28.0:
        pytest.skip("this version of CP-SAT makes another claim")
    # The list schedule refutes the claim, and is what the cut-off is made of
    first, second = solution.solver.attempts
    assert first.name == "cp-sat" and "nothing is better than 28" in first.outcome
    assert second == ("known point", "feasible")


def test_a_refuted_claim_gives_way_to_what_refuted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.solvers import CpSat

    honest, calls = CpSat.solve_timeline, []

    def hasty(self: CpSat, program: Any, limits: Any, start: Any = None) -> Any:
        """Takes the first schedule for optimal, once."""
        calls.append(limits)
        values = honest(self, program, limits, start)
        if len(calls) > 1 or start is None:
            return values
        cost = program.objective(*(part.astype(int) for part in np.split(start, 2)))
        return replace(values, x=start, objective=float(cost), bound=float(cost))

    monkeypatch.setattr(CpSat, "solve_timeline", hasty)
    instance = machines(random_unrelated(11, 12, 3))
    solution = optsched.solve(instance, "makespan-unrelated", program="timeline", prove=True)
    assert solution.certificate.proof == "cross-checked" and len(calls) >= 2
    monkeypatch.undo()
    assert (
        solution.objective
        == optsched.solve(instance, "makespan-unrelated", program="assignment").objective
    )
    assert any("claimed that" in reason for reason in solution.solver.rebuilt)


def test_an_attempt_that_is_stopped_leaves_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.solving import proof
    from optsched.solving.proof import CutOffResult

    monkeypatch.setattr(
        proof, "better_point", lambda *_: CutOffResult("scip stopped with TIME_LIMIT")
    )
    solution = optsched.solve("@packing", "max-throughput", integral=True, prove=True)
    assert (solution.status, solution.certificate.proof) == ("optimal", "claimed")


def test_integral_allocations_are_cross_checked() -> None:
    plain = optsched.solve("@packing", "max-throughput", integral=True)
    proven = optsched.solve("@packing", "max-throughput", integral=True, prove=True)
    assert (plain.certificate.proof, proven.certificate.proof) == ("claimed", "cross-checked")
    assert plain.objective == proven.objective and proven.gap <= 1e-6
    assert optsched.verify("@packing", proven.to_document()).ok


@pytest.mark.parametrize(
    ("solver", "proof"), [("pulp:HiGHS", "claimed"), ("scip", "cross-checked")]
)
def test_highs_is_no_second_opinion_on_itself(solver: str, proof: str) -> None:
    """Three gangs of 2 on two pools of 3 GPUs: a claim that HiGHS agrees with."""
    job = {"gpus": 2, "throughput": {"a": {"2": 1.0}, "b": {"2": 1.0}}}
    given = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": name, "nodes": 1, "gpus_per_node": 3} for name in ("a", "b")]
        },
        "jobs": [{"id": f"j{row}", **job} for row in range(3)],
    }
    constraint = {"kind": "minimum-service", "fraction": 1.0}
    solution = optsched.solve(
        given, "max-throughput", integral=True, constraints=[constraint], solver=solver
    )
    assert (solution.status, solution.certificate.proof) == ("infeasible", proof)


def test_a_hasty_branch_and_bound_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, best = HighsSession.run, optsched.solve("@packing", "max-throughput", integral=True)

    def hasty(self: HighsSession, limits: Limits) -> Any:
        values = honest(self, limits)
        if not self.arrays.is_integer or values.x is None:
            return values
        x = np.where(np.arange(len(values.x)) % 2, values.x, 0.0)
        worse = self.arrays.objective(x)
        return replace(values, x=x, objective=worse, bound=worse)

    monkeypatch.setattr(HighsSession, "run", hasty)
    solution = optsched.solve("@packing", "max-throughput", integral=True, prove=True)
    assert solution.certificate.proof == "cross-checked"
    assert solution.objective == pytest.approx(best.objective, rel=1e-6)


def test_linear_programs_need_no_second_proof() -> None:
    assert optsched.solve("@quickstart", prove=True).certificate.proof == "dual"


def test_the_step_of_an_objective() -> None:
    def program(cost: list[float], integer: list[bool]) -> Any:
        lp = LinearProgram()
        x = lp.variables(len(cost), name="x", upper=3.0, integer=integer)
        lp.constrain(x.sum() <= 4.0, name="row")
        lp.maximise(np.array([cost]) @ x)
        return lp.arrays

    def step(arrays: LinearArrays) -> float | None:
        return step_of(arrays.cost, arrays.integer)

    assert step(program([4.0, 6.0], [True, True])) == 2.0
    assert step(program([0.25, 1.5], [True, True])) == 0.25
    assert step(program([4.0, 6.0], [True, False])) is None
    assert step(program([4.0, 0.0], [True, False])) == 4.0
    assert step(program([np.pi, 1.0], [True, True])) is None
    assert step(program([1e-10, 1.0], [True, True])) is None  # not 1, and 0 is no step
    arrays = program([4.0, 6.0], [True, True])
    cut = cut_off(arrays, 22.0, 1.0)
    assert cut.row_lower[-1] == 23.0 and cut.rows[-1].name == "cut-off"
    assert (
        Engine(load_solver, "scip").open(cut).run(Limits()).x is None
    )  # 3 x 6 + 1 x 4 = 22 is the best
