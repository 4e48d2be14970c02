"""A policy that no round can be planned with is refused before the first one, in the words of a single solution."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched.api import make_constraint
from optsched.errors import InvalidInput, JournalError, OptschedError, SolverUnavailable, UsageError
from optsched.rounds import RoundPolicy, check_policy

Document = dict[str, Any]
CELLS = {"kind": "cells", "tenant": "A", "owns": {"4": 1}, "reserved": True}
JOB = {"id": "a", "gpus": 4, "steps": 1e5, "throughput": {"v100": 40.0}}


def instance(*jobs: Document, **pool: Any) -> optsched.Instance:
    pools = [{"name": "v100", "nodes": 2, "gpus_per_node": 4, **pool}]
    document = instance_document(pools, list(jobs), round=360, tenants=[{"name": "A"}])
    return optsched.Instance.from_document(document)


def wrong(kind: type[OptschedError], words: str, code: int, **policy: Any) -> Any:
    return pytest.param(policy, kind, words, code, id=words)


WRONG = [
    wrong(SolverUnavailable, "solver: found 'hihgs'", 7, solver="hihgs"),
    wrong(SolverUnavailable, "solver gurobi is not installed...", 7, solver="gurobi"),
    wrong(SolverUnavailable, "solver: found cp-sat, expected one with continuous", 7, solver="cp-sat"),
    wrong(SolverUnavailable, "solver: found pdlp, expected one with integer", 7, solver="pdlp",
          formulation="multiple-choice"),
    wrong(SolverUnavailable, "solver: found glop, expected one with conic", 7, solver="glop",
          formulation="proportional-fairness"),
    wrong(UsageError, "cluster.pools[0].watts_per_gpu", 2, constraints=[{"kind": "power", "limit": 5}]),
    wrong(InvalidInput, "cluster.pools[0].cost_per_gpu_hour", 3, formulation="cost"),
    wrong(InvalidInput, "cluster.pools[0].cost_per_gpu_hour", 3, formulation="throughput-per-cost"),
    wrong(UsageError, "option of makespan: reference_pool: found 'k80', expected one of v100", 2,
          formulation="makespan", options={"agnostic": True, "reference_pool": "k80"}),
    wrong(UsageError, "formulation: found 'maxmin'", 2, formulation="maxmin"),
    wrong(UsageError, "option of makespan: found 'agnostc'", 2, formulation="makespan", options={"agnostc": True}),
    wrong(UsageError, "constraints: found rows, expected none for fifo", 2, formulation="fifo",
          constraints=[{"kind": "deadlines", "give_way": "shortfall"}]),
    wrong(UsageError, "constraints: found rows, expected none for makespan-unrelated", 2,
          formulation="makespan-unrelated", constraints=[{"kind": "deadlines"}]),
    wrong(UsageError, "cells of tenant A are reserved: programs of whole jobs find them with the constraint placeable",
          2, formulation="max-throughput", options={"integral": True}, constraints=[CELLS]),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "kind", "words", "code"), WRONG)
@pytest.mark.parametrize("jobs", [(), (JOB,)], ids=["no jobs", "a job"])
def test_what_can_never_work_is_refused(
    policy: Document, kind: type[OptschedError], words: str, code: int, jobs: tuple[Document, ...]
) -> None:
    with refuses(words, kind) as refused:
        optsched.Scheduler(instance(*jobs), policy, isolate=False)
    assert refused.value.exit_code == code
    if jobs:  # the same words as of a solution
        given = {key: policy[key] for key in ("constraints", "options", "solver") if key in policy}
        with pytest.raises(kind) as alone:
            optsched.solve(instance(*jobs), policy.get("formulation", "max-min-fairness"), **given)
        assert str(alone.value) == str(refused.value)


@pytest.mark.parametrize("policy", [
    {"solver": "clarabel"}, {"solver": "highs", "formulation": "multiple-choice"},
    {"solver": "clarabel", "formulation": "proportional-fairness"},
    {"solver": "cp-sat", "formulation": "makespan-unrelated"}, {"formulation": "isolated", "solver": "highs"},
    {"formulation": "allox", "solver": "glop"}, {"ranking": "srtf", "solver": "hihgs"},
    {"formulation": "max-throughput", "options": {"integral": True}, "constraints": ["placeable", CELLS]},
])  # fmt: skip
@pytest.mark.parametrize("jobs", [(), (JOB,)], ids=["no jobs", "a job"])
def test_what_can_work_is_not(policy: Document, jobs: tuple[Document, ...]) -> None:
    check_policy(optsched.RoundPolicy.model_validate(policy), instance(*jobs))


def test_a_job_that_only_some_cannot_be_planned_for_is_no_reason() -> None:
    pools = [
        {"name": "v100", "nodes": 1, "gpus_per_node": 4, "cost_per_gpu_hour": 2.0},
        {"name": "k80", "nodes": 1, "gpus_per_node": 4},
    ]
    jobs = [JOB, {"id": "b", "steps": 1e5, "throughput": {"k80": 1.0}}]
    document = instance_document(pools, jobs, round=360)
    policy = {"constraints": [{"kind": "budget", "limit": 50}]}
    plan = optsched.Scheduler(
        optsched.Instance.from_document(document), policy, isolate=False
    ).solve(now=0)
    assert plan.fallback is None and [item.job for item in plan.start] == ["a"]
    assert "cluster.pools[1].cost_per_gpu_hour: found nothing" in plan.hold[0].reason


def test_constraints_are_given_as_to_solve() -> None:
    given = ["placeable", make_constraint(CELLS)]
    documents = [{"kind": "placeable"}, make_constraint(CELLS).document()]
    assert [*RoundPolicy(constraints=given).constraints] == documents
    scheduler = optsched.Scheduler(instance(JOB), {"constraints": given}, isolate=False)
    scheduler.set_constraints(["placeable"])
    assert [*scheduler.instance.constraints] == [{"kind": "placeable"}]
    # As for `solve`, options of the command line are no kind.
    for act in (lambda: RoundPolicy(constraints=["budget:limit=1"]),
                lambda: scheduler.set_constraints(["budget:limit=1"])):  # fmt: skip
        with refuses(
            'constraint: found "budget:limit=1", expected a kind, or a dict...', UsageError
        ):
            act()


def test_a_deadline_that_cannot_be_kept_is_no_reason() -> None:
    late = instance({**JOB, "deadline": 1.0})
    made = optsched.Scheduler(late, {"constraints": [{"kind": "deadlines"}]}, isolate=False)
    plan = made.solve(now=0)
    assert plan.fallback is None and [job for job, _ in plan.declined] == ["a"]


def test_a_state_with_an_unknown_solver_is_refused() -> None:
    with refuses("solver: found 'hihgs'", SolverUnavailable):
        optsched.solve_round(instance(JOB), {"solver": "hihgs"})


@pytest.mark.process
def test_the_command_line_refuses_it_too(tmp_path: Path) -> None:
    policy, file = tmp_path / "policy.json", tmp_path / "instance.json"
    policy.write_text('{"constraints": [{"kind": "power", "limit": 5}]}')
    file.write_text(json.dumps(instance(JOB).to_document()))
    run = [sys.executable, "-m", "optsched", "round", str(file), "--policy-file", str(policy)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cluster.pools[0].watts_per_gpu: found nothing" in done.stderr


def test_a_first_state_reads_a_policy_as_a_scheduler_does() -> None:
    state = optsched.RoundState.first(instance(), {"hysteresis": 0})
    assert state.policy == optsched.Scheduler(instance(), {"hysteresis": 0}).state.policy
    assert optsched.solve_round(state).fallback is None
    with refuses("policy.hysterisis"):
        optsched.RoundState.first(instance(), {"hysterisis": 0})


def test_a_scheduler_that_is_refused_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from optsched.rounds import scheduler as scheduling

    made: list[Any] = []

    class Watched(scheduling.SolverProcess):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            self.closed = False
            made.append(self)

        def close(self) -> None:
            self.closed = True
            super().close()

    monkeypatch.setattr(scheduling, "SolverProcess", Watched)
    optsched.Scheduler(instance(), journal=tmp_path / "j").close()
    with pytest.raises(JournalError, match="there is one already"):
        optsched.Scheduler(instance(), journal=tmp_path / "j")
    with pytest.raises(SolverUnavailable):
        optsched.Scheduler(instance(), {"solver": "hihgs"})
    assert [process.closed for process in made] == [True, True, True]
