"""Column generation of pairs: against programs with all pairs as columns, on small packed instances of many shapes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from generation_cases import REFUSED, interference

import optsched
from formulations.max_min_fairness import MaxMinFairness
from optsched.assembly import compile, make_formulation, make_model
from optsched.candidates import Candidates
from optsched.cli.main import main
from optsched.errors import UsageError
from optsched.performance import Feasibility, PairPrediction
from optsched.solution import dual_bound
from optsched.solving.column_generation import Duals, PairPricing

pytestmark = pytest.mark.property

FORMULATIONS = ("max-min-fairness", "makespan", "max-throughput")
POOLS = [
    {
        "name": "p",
        "gpu": "P",
        "nodes": 2,
        "gpus_per_node": 4,
        "gpu_memory": 16,
        "cpus_per_node": 16,
    },
    {"name": "q", "gpu": "Q", "nodes": 1, "gpus_per_node": 4, "gpu_memory": 40},
]
WORKLOADS = ("w0", "w1", "w2", "w3")


def packed(seed: int, jobs: int = 12, elastic: bool = False, stated: bool = True) -> dict[str, Any]:
    """Jobs of four workloads: some equal, some with rates of their own, gangs, demands, pairs modelled and stated."""
    rng = np.random.default_rng(seed)
    utilisation = {
        name: {"utilisation": {"P": rng.uniform(0.2, 0.9), "Q": rng.uniform(0.1, 0.7)}}
        for name in WORKLOADS
    }
    counts = ("1", "2", "4")
    workloads = {
        name: {
            "throughput": {
                pool: {count: rng.uniform(1, 2) * int(count) ** 0.8 * scale for count in counts}
                for pool, scale in (("p", 1.0), ("q", 2.5))
            },
            "gpu_memory": float(rng.choice([4, 9])),
            "demand": {"cpu": float(rng.choice([0, 1, 3]))},
        }
        for name in WORKLOADS
    }
    made = []
    for row in range(jobs):
        gpus = 1 if row < 3 else int(rng.choice([1, 1, 2, 4]))
        job = {
            "id": f"j{row}", "workload": str(rng.choice(WORKLOADS)), "steps": float(rng.choice([100, 150, 400])),
            "weight": float(rng.choice([1, 2])), "gpus": {"min": 1, "max": 4, "levels": [1, 2, 4]} if elastic else gpus,
        }  # fmt: skip
        if not elastic and rng.random() < 0.6:
            job["throughput"] = {
                "p": rng.uniform(1, 2),
                **({"q": rng.uniform(1, 4)} if rng.random() < 0.8 else {}),
            }
        made.append(job)
    colocation: list[dict[str, Any]] = []
    if stated:
        colocation += [
            {"workloads": ["w0", "w1"], "pool": "p", "gpus": 1, "throughput": [1.3, 0.9]},
            {"workloads": ["w0", "w3"], "pool": "q", "gpus": 1, "throughput": [1.8, 1.1]},
            {"workloads": ["w2", "w2"], "pool": "q", "gpus": 2, "throughput": [2.0, 1.0]},
            {"jobs": ["j0", "j1"], "pool": "q", "gpus": 1, "throughput": [1.5, 2.5]},
        ]
    return {
        "format": "optsched-instance/1", "name": f"packed {seed}", "cluster": {"pools": POOLS},
        "workloads": workloads, "jobs": made, "colocation": colocation,
        "performance": interference(utilisation),
    }  # fmt: skip


def both(
    document: dict[str, Any], formulation: str, **more: Any
) -> tuple[optsched.Solution, optsched.Solution]:
    instance = optsched.Instance.from_document(document)
    generated = optsched.solve(instance, formulation, generate_columns=True, **more)
    return generated, optsched.solve(instance, formulation, solver="highs", **more)


def check(generated: optsched.Solution, full: optsched.Solution) -> None:
    assert generated.ok and generated.status == "optimal", generated.certificate
    assert generated.objective == pytest.approx(full.objective, rel=1e-7)
    beyond = (generated.bound - full.objective) * (1 if full.sense == "max" else -1)
    assert beyond >= -1e-9 * abs(full.objective)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("seed", range(20))
def test_equals_the_program_with_all_pairs(seed: int, formulation: str) -> None:
    generated, full = both(packed(seed, jobs=6 + seed), formulation)
    check(generated, full)
    made = generated.columns_made
    assert made is not None and full.columns_made is None
    assert full.allocation is not None
    assert made.possible == (~full.allocation.classes.alone).sum()
    assert 0 <= made.made <= made.possible


@pytest.mark.parametrize("seed", range(6))
def test_elastic_jobs(seed: int) -> None:
    check(*both(packed(seed, jobs=8, elastic=True), FORMULATIONS[seed % 3]))


@pytest.mark.parametrize("seed", range(4))
def test_without_classes(seed: int) -> None:
    generated, full = both(packed(seed, jobs=10), "max-min-fairness", classes=False)
    check(generated, full)
    assert generated.allocation is not None and (generated.allocation.classes.count == 1).all()


@pytest.mark.unit
@pytest.mark.parametrize("workloads", [True, False])
def test_pairs_of_a_table(workloads: bool) -> None:
    """Pairs that are only stated, with one rate above that alone; and a model of no pairs at all."""
    document = packed(1, stated=workloads)
    document["performance"] = {"model": "table"}
    if workloads:
        document["colocation"].append(
            {"workloads": ["w3", "w1"], "pool": "p", "gpus": 1, "throughput": [9.0, 0.0]}
        )
    generated, full = both(document, "max-min-fairness")
    check(generated, full)
    assert generated.columns_made is not None and (generated.columns_made.possible > 0) == workloads


class ByJob:
    """Fractions that depend on the rates of the jobs' own: one job of a workload tells nothing of another."""

    name, version, per_workload = "by-job", 0, False

    def __init__(self, instance: optsched.Instance) -> None:
        self.table = make_model(instance, {"model": "table"})

    def predict(self, *given: Any, **more: Any) -> Any:
        return self.table.predict(*given, **more)

    def observe(self, observations: Any) -> set[int]:
        return set()

    def pair_fractions(
        self, jobs: Any, configurations: Any, first: Any, second: Any, configuration: Any
    ) -> Any:
        part = 0.45 + 0.05 * (jobs.profile % 11)
        feasible = np.full(len(first), Feasibility.OK, np.uint8)
        return PairPrediction(
            part[first],
            part[second],
            np.zeros(len(first)),
            feasible,
            np.full(len(first), 3, np.uint8),
        )


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_tells_jobs_of_a_workload_apart(seed: int) -> None:
    instance = optsched.Instance.from_document(packed(seed, jobs=14))
    model: Any = ByJob(instance)
    generated = optsched.solve(instance, model=model, generate_columns=True)
    check(generated, optsched.solve(instance, model=model))


# --- bounds and limits ----------------------------------------------------------------------------------------------


def full_and_pricing(seed: int) -> tuple[optsched.Solution, PairPricing]:
    instance = optsched.Instance.from_document(packed(seed, jobs=14))
    formulation = make_formulation("max-min-fairness")
    candidates: Candidates = compile(instance, on_demand=True)
    return optsched.solve(instance), PairPricing.of(
        formulation.program(formulation.classes(candidates))
    )


@pytest.mark.parametrize("seed", range(5))
def test_any_duals_bound_the_whole_program(seed: int) -> None:
    full, pricing = full_and_pricing(seed)
    assert full.allocation is not None
    rng = np.random.default_rng(seed)
    C = pricing.classes
    arrays = pricing.program.to_linear().arrays
    for _ in range(20):
        duals = Duals(
            rng.random(len(C)), rng.random(len(C.capacity)) / 10, rng.random(len(C)) / C.count.sum()
        )
        told = dual_bound(arrays, duals.rows(pricing.program))
        assert told is not None
        assert told + pricing.left_out(duals) >= full.objective


@pytest.mark.parametrize("seed", range(12))
def test_the_most_that_a_pair_is_worth_is_that_of_all_columns(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "optsched.solving.column_generation.pair_pricing.LONELY", 2.0
    )  # the best partner of each is always offered
    full, pricing = full_and_pricing(seed)
    rng = np.random.default_rng(seed)
    assert full.allocation is not None
    C = full.allocation.classes
    duals = Duals(rng.random(len(C)) / 20, rng.random(len(C.capacity)) / 100, rng.random(len(C)))
    levels = np.asarray(pricing.scale)[:, None] * C.throughput.toarray()
    value = (
        duals.levels @ levels - duals.capacity @ C.usage.toarray() - duals.time @ C.member.toarray()
    )
    most = np.zeros(len(C))
    pair = np.flatnonzero(~C.alone)
    np.maximum.at(most, C.class_a[pair], value[pair])
    np.maximum.at(most, C.class_b[pair], value[pair])
    assert pricing.excess(duals) == pytest.approx(most, abs=1e-12)
    assert most.max() > 0
    told, found = pricing.best(duals, 0.0)
    assert told == pytest.approx(most, abs=1e-12)
    assert len(found) and found.value.max() == pytest.approx(most.max(), abs=1e-12)
    assert len(pricing.possible(found.first, found.second, found.way)) == len(found)
    best = np.zeros(len(C))
    for side in (found.first, found.second):
        np.maximum.at(best, side, found.value)
    assert best == pytest.approx(most, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_levels_that_make_less_than_1_by_rounding_leave_no_gap(seed: int) -> None:
    """What is missing counts for as much as the smallest level can be, not for the level of a job of a tiny weight."""
    document = packed(seed, jobs=30)
    rng = np.random.default_rng(seed)
    for job in document["jobs"]:
        job["weight"] = float(rng.choice([1e-6, 1.0, 1e6]))
    instance = optsched.Instance.from_document(document)
    full, generated = optsched.solve(instance), optsched.solve(instance, generate_columns=True)
    check(generated, full)
    formulation = make_formulation("max-min-fairness")
    pricing = PairPricing.of(
        formulation.program(formulation.classes(compile(instance, on_demand=True)))
    )
    assert full.objective is not None and full.objective <= pricing.highest * (1 + 1e-9)
    assert generated.duals is not None
    duals = Duals.of(generated.duals, pricing.program)
    short = Duals(duals.time, duals.capacity, duals.levels * (1 - 1e-12))
    assert (
        pricing.left_out(short)
        <= 1e-9 * full.objective
        < 1e-12 * max(way.level.max() for way in pricing.ways)
    )


@pytest.mark.parametrize("work", [1, 3, 10, 30])
def test_a_run_that_is_stopped_has_a_bound_that_holds(work: int) -> None:
    instance = optsched.Instance.from_document(packed(3, jobs=30))
    full = optsched.solve(instance)
    stopped = optsched.solve(instance, generate_columns=True, work_limit=work)
    if stopped.objective is None:
        assert stopped.status == "limit"
        return
    assert stopped.ok
    assert stopped.objective <= full.objective * (1 + 1e-9)
    assert stopped.bound is not None and stopped.bound >= full.objective * (1 - 1e-9)
    assert stopped.status == ("optimal" if stopped.gap <= 1e-6 else "feasible")
    assert optsched.verify(instance, stopped.to_document()).ok


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_verify_prices_all_pairs(formulation: str) -> None:
    instance = optsched.Instance.from_document(packed(4, jobs=30))
    document = optsched.solve(instance, formulation, generate_columns=True).to_document()
    verified = optsched.verify(instance, document)
    assert verified.ok and verified.bound == "verified", verified.findings
    assert any("jobs" in row for row in document["allocation"])
    wrong = copy.deepcopy(document)
    wrong["columns_made"]["made"] = 0
    (told,) = optsched.verify(instance, wrong).findings
    assert told.field == "columns_made.made" and "which are in use" in told.message
    wrong = copy.deepcopy(document)
    wrong["columns_made"]["possible"] += 1
    assert [finding.field for finding in optsched.verify(instance, wrong).findings] == [
        "columns_made.possible"
    ]


@pytest.mark.unit
def test_verify_refuses_a_bound_of_the_columns_in_the_file_alone() -> None:
    """The optimum without pairs is none, though its duals prove it for the columns that the file names."""
    instance = optsched.Instance.from_document(packed(5, jobs=20))
    document = packed(5, jobs=20, stated=False)
    document["performance"] = {"model": "table"}
    alone = optsched.solve(optsched.Instance.from_document(document))
    assert alone.objective < optsched.solve(instance).objective * (1 - 1e-3)
    claim = alone.to_document()
    honest = optsched.solve(instance, generate_columns=True).to_document()
    claim["instance"], claim["columns_made"] = honest["instance"], honest["columns_made"]
    found = {finding.field for finding in optsched.verify(instance, claim).findings}
    assert {"bound", "status"} <= found


# --- what cannot be generated ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("formulation", "more", "words"), REFUSED)
def test_refusals(formulation: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        optsched.solve(
            optsched.Instance.from_document(packed(0)), formulation, generate_columns=True, **more
        )


@pytest.mark.parametrize(
    ("agnostic", "words"),
    [
        (True, "its throughput times a number"),
        ("literal", "an option changes which columns there are"),
    ],
)
def test_levels_that_are_no_throughputs_are_refused_of_any_formulation(
    monkeypatch: pytest.MonkeyPatch, agnostic: bool | str, words: str
) -> None:
    monkeypatch.setattr(MaxMinFairness, "has_ties", False)  # which those of others may not state
    document = packed(0)
    document["jobs"][0]["throughput"] = {"p": 1.0, "q": 0.0}
    with pytest.raises(UsageError, match=words):
        optsched.solve(
            optsched.Instance.from_document(document), agnostic=agnostic, generate_columns=True
        )


def test_throughputs_that_do_not_count_are_refused_on_one_pool_too() -> None:
    """Jobs alone have one rate each there, so that their levels are multiples of their rates."""
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 1}]},
        "workloads": {"u": {"throughput": {"p": 4.0}}, "v": {"throughput": {"p": 2.0}}},
        "colocation": [{"workloads": ["u", "v"], "pool": "p", "throughput": [1.1, 0.6]}],
        "jobs": [{"id": "a", "workload": "u"}, {"id": "b", "workload": "v"}],
    }
    assert optsched.solve(document, agnostic=True).objective == pytest.approx(1.0)
    for options in ({}, {"formulation": "makespan", "reference_pool": "p"}):
        with pytest.raises(UsageError, match="generates no columns with agnostic"):
            optsched.solve(document, agnostic=True, generate_columns=True, **options)


def test_side_constraints_on_pairs_alone_are_refused() -> None:
    """Neither job runs on q alone: over the first columns, what is forbidden there has no rows."""
    jobs = [{"id": name, "workload": "u", "throughput": {"p": 1.0}} for name in "ab"]
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": name, "nodes": 1, "gpus_per_node": 1} for name in ("p", "q")]
        },
        "workloads": {"u": {}},
        "colocation": [{"workloads": ["u", "u"], "pool": "q", "throughput": [3.0, 3.0]}],
        "constraints": [{"kind": "forbidden", "pools": ["q"]}],
        "jobs": jobs,
    }
    for formulation in ("max-min-fairness", "max-throughput"):
        assert optsched.solve(document, formulation).status == "optimal"
        with pytest.raises(UsageError, match="side constraints have rows"):
            optsched.solve(document, formulation, generate_columns=True)


def test_candidates_have_their_columns() -> None:
    candidates = optsched.compile(optsched.Instance.from_document(packed(0)))
    with pytest.raises(UsageError, match="generate_columns needs an instance"):
        optsched.solve(candidates, generate_columns=True)


def test_a_job_that_runs_only_beside_others_is_refused() -> None:
    document = packed(0)
    document["jobs"].append(
        {"id": "shy", "workload": "w0", "gpus": 1, "steps": 1, "throughput": {"p": 0.0}}
    )
    document["colocation"].append(
        {"jobs": ["j2", "shy"], "pool": "p", "gpus": 1, "throughput": [1.0, 1.0]}
    )
    with pytest.raises(UsageError, match="only for jobs that can run alone, which job shy cannot"):
        optsched.solve(optsched.Instance.from_document(document), generate_columns=True)


# --- the command line -----------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, plan = tmp_path / "packed.json", tmp_path / "plan.json"
    instance.write_text(json.dumps(packed(4, jobs=30)))
    assert main(["solve", str(instance), "--generate-columns", "-v", "-o", str(plan)]) == 0
    told = capsys.readouterr().err
    assert "made columns: value" in told and "in use" in told
    assert main(["verify", str(instance), str(plan)]) == 0
    capsys.readouterr()
    assert main(["solve", str(instance), "-f", "water-filling", "--generate-columns"]) == 2
    assert "water-filling generates no columns" in capsys.readouterr().err
    program = tmp_path / "program.mps"
    program.write_text("NAME\n")
    assert main(["solve", str(program), "--generate-columns"]) == 2
    assert "--generate-columns needs an instance" in capsys.readouterr().err


def test_pairs_do_not_change_the_unit_of_a_makespan() -> None:
    """A pair that gives a job more than it has alone: which pairs are columns must not count."""
    document = instance_document(
        {"p": 10},
        [
            {"id": name, "workload": "w", "steps": 100, "throughput": {"p": rate}}
            for name, rate in (("a", 2.0), ("b", 0.2))
        ],
        workloads={"w": {}},
        colocation=[{"workloads": ["w", "w"], "pool": "p", "gpus": 1, "throughput": [1, 1]}],
    )
    instance = optsched.Instance.from_document(document)
    generated = optsched.solve(instance, "makespan", generate_columns=True)
    assert generated.certificate.ok and generated.status == "optimal"
    assert generated.bound == pytest.approx(
        optsched.solve(instance, "makespan").objective, rel=1e-9
    )
