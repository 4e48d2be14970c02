"""Column generation of configurations: against programs with all of them as columns, on small elastic instances."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generation_cases import REFUSED
from refusals import refuses

import optsched
from formulations.max_min_fairness import MaxMinFairness
from optsched.assembly import compile, make_formulation
from optsched.candidates import Candidates

# Private names: single strategies, without the engine that chooses them
from optsched.candidates.configuration_table import first_largest
from optsched.cli.main import main
from optsched.errors import UsageError
from optsched.generate import generate
from optsched.solution import dual_bound
from optsched.solving.column_generation import Chosen, ConfigurationPricing, Duals
from optsched.solving.column_generation.configuration_generation import restricted
from optsched.solving.column_generation.segments import segments

pytestmark = pytest.mark.property

LINEAR = ("max-min-fairness", "makespan", "max-throughput")
CONCAVE = ("proportional-fairness", "alpha-fairness")
POOLS = ("p", "q", "r")


def elastic(seed: int, jobs: int = 24, model: str | None = None) -> dict[str, Any]:
    """Elastic jobs with tables or laws, spreads, levels, demands, options and tables of their own; GPUs are scarce."""
    rng, cpus = np.random.default_rng(seed), 40 if seed % 2 else 10
    pools: list[dict[str, Any]] = [
        {"name": "p", "gpu": "P", "nodes": 3, "gpus_per_node": 4, "gpu_memory": 16, "cpus_per_node": cpus},
        {"name": "q", "gpu": "Q", "nodes": int(rng.integers(1, 3)), "gpus_per_node": 8, "gpu_memory": 40},
        {"name": "r", "gpu": "R", "nodes": 2, "gpus_per_node": 8, "memory_per_node": 60},
    ]  # fmt: skip
    workloads: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    for number in range(5):
        counts = np.sort(
            rng.choice(np.arange(1, 17), size=rng.integers(4, 10), replace=False)
        ).tolist()
        power = rng.uniform(0.4, 1)
        table: dict[str, Any] = {
            pool: {str(count): rng.lognormal(0, 0.1) * count**power * scale for count in counts}
            for pool, scale in zip(POOLS, (1.0, 2.0, 3.0), strict=True)
        }
        if counts[-1] > 2:
            told = table["p"][str(counts[-1])]
            table["p"][str(counts[-1])] = {"2": told, "3": 0.8 * told}
        table["r"][str(counts[0])] *= float(rng.random() > 0.2)  # 0: it cannot run so
        demand = {"cpu": float(rng.choice([1, 3])), "memory": 2.0} if rng.random() < 0.6 else {}
        demand |= {"licence": 0.5} if rng.random() < 0.4 else {}
        workload: dict[str, Any] = {"demand": demand, "gpu_memory": float(rng.choice([4, 20]))}
        if model is None:
            workload["throughput"] = table
        else:
            law = {"batch": 64.0, "crosstalk": rng.uniform(0, 0.01) if model == "usl" else 0.0}
            curves[f"w{number}"] = {
                pool["gpu"]: [law | {"work": rng.lognormal(0, 0.5), "serial": rng.uniform(0, 0.2)}]
                for pool in pools
            }
            workload["parameters"] = {"batch": 64}
            if number == 0:
                workload["throughput"] = {"p": {"1": 1.0, "3": 2.5}}
        workloads[f"w{number}"] = workload
    made = []
    for row in range(jobs):
        low = int(rng.choice([1, 1, 2, 3]))
        high = low + int(rng.choice([0, 4, 12, 30]))
        job = {
            "id": f"j{row}", "workload": f"w{rng.integers(0, 5)}", "steps": float(rng.choice([100, 130])),
            "weight": float(rng.choice([1, 1.5])), "gpus": {"min": low, "max": high},
        }  # fmt: skip
        what = rng.random()
        if what < 0.15:
            job["gpus"] = {
                "min": low,
                "max": high,
                "levels": sorted({low, (low + high) // 2, high}),
            }
        elif what < 0.25:
            job |= {"gpus": low, "throughput": {"p": rng.uniform(1, 2)}}
        elif what < 0.45:
            curve = np.arange(low, min(high, 12) + 1)
            rates = rng.uniform(1, 2) * curve**0.7
            job["throughput"] = {
                "q": dict(zip(map(str, curve.tolist()), rates.tolist(), strict=True))
            }
        elif what < 0.5:
            del job["gpus"]
            job["options"] = [
                {"pool": "p", "gpus": count, "throughput": count**0.8, "uses": {"cpu": count}}
                for count in (1, 2, 4)
            ]
        made.append(job)
    return {
        "format": "optsched-instance/1", "name": f"elastic {seed}", "workloads": workloads, "jobs": made,
        "cluster": {"pools": pools, "resources": [{"name": "licence", "kind": "renewable", "capacity": 9.0}]},
        "performance": {"model": "table"} if model is None else {"model": model, "curves": curves},
    }  # fmt: skip


def scarce(seed: int, jobs: int = 40, model: str | None = "usl") -> dict[str, Any]:
    """Jobs of as many weights, and about a GPU for each: many run on some GPUs, neither the fewest nor the most."""
    document = elastic(seed, jobs, model)
    rng = np.random.default_rng(seed)
    for pool, nodes in zip(
        document["cluster"]["pools"], (jobs // 10, jobs // 40 + 1, jobs // 30 + 1), strict=True
    ):
        pool |= {"nodes": nodes, "gpu_memory": 40, "cpus_per_node": 100}
    for job in document["jobs"]:
        job.pop("throughput", None)
        job.pop("options", None)
        job |= {
            "gpus": {"min": 1, "max": 16},
            "weight": rng.uniform(1, 4),
            "steps": rng.uniform(100, 400),
        }
    for name, workload in document["workloads"].items():
        workload["demand"] = {"cpu": 3.0} if name in ("w1", "w2") else {}
        table = workload.get("throughput", {})
        for pool, rates in table.items():
            table[pool] = {
                str(count): rng.uniform(1, 2) * count**0.7 for count in (1, *map(int, rates))
            }
    return document


def check(generated: optsched.Solution, full: optsched.Solution, within: float = 1e-9) -> None:
    assert generated.ok and generated.status == "optimal", generated.certificate
    assert generated.objective == pytest.approx(full.objective, rel=within)
    assert (
        generated.objective is not None
        and generated.bound is not None
        and full.objective is not None
    )
    beyond = (generated.bound - full.objective) * (1 if full.sense == "max" else -1)
    assert beyond >= -within * abs(full.objective)
    assert {job for job, _ in generated.unplaced} == {job for job, _ in full.unplaced}


@pytest.mark.parametrize("formulation", LINEAR)
@pytest.mark.parametrize(
    ("solver", "model"), [("auto", None), ("auto", "amdahl"), ("prices", None), ("prices", "usl")]
)
def test_equals_the_program_with_all_configurations(
    solver: str, formulation: str, model: str | None
) -> None:
    made = 0
    for seed in range(3):
        for document in (elastic(seed, 10 + 15 * seed, model), scarce(seed, 15 + 15 * seed, model)):
            instance = optsched.Instance.from_document(document)
            full = optsched.solve(instance, formulation, solver="highs")
            generated = optsched.solve(instance, formulation, solver=solver, generate_columns=True)
            check(generated, full)
            assert generated.columns_made is not None and full.columns_made is None
            assert generated.columns_made.of == "configurations"
            made += generated.columns_made.made
            start = compile(instance, on_demand=True).classes(make_formulation(formulation).reads)
            assert full.allocation is not None
            assert (
                generated.columns_made.possible == full.allocation.classes.columns - start.columns
            )
    assert made > 0


@pytest.mark.parametrize("formulation", CONCAVE)
@pytest.mark.parametrize("model", [None, "usl"])
def test_totals_of_concave_utilities(formulation: str, model: str | None) -> None:
    for seed in range(3):
        instance = optsched.Instance.from_document(scarce(seed, 16, model))
        full = optsched.solve(instance, formulation)
        generated = optsched.solve(instance, formulation, solver="prices", generate_columns=True)
        check(generated, full, 1e-7)
        assert optsched.verify(instance, generated.to_document()).ok


@pytest.mark.parametrize(
    ("formulation", "options"),
    [("max-throughput", {"normalise": "best"}), ("alpha-fairness", {"alpha": 0.5})],
)
def test_normalisers_are_those_of_all_configurations(
    formulation: str, options: dict[str, Any]
) -> None:
    instance = optsched.Instance.from_document(elastic(5, 20, "usl"))
    full = optsched.solve(instance, formulation, **options)
    check(optsched.solve(instance, formulation, generate_columns=True, **options), full, 1e-7)


@pytest.mark.unit
def test_without_classes() -> None:
    instance = optsched.Instance.from_document(elastic(1, 20, "usl"))
    generated = optsched.solve(instance, generate_columns=True, classes=False)
    check(generated, optsched.solve(instance, solver="highs"))
    assert generated.allocation is not None and (generated.allocation.classes.count == 1).all()


def test_classes_of_one_kind_have_columns_of_their_own() -> None:
    """Jobs of one workload that differ in their weights alone: few kinds, many classes."""
    document = scarce(2)
    for row, job in enumerate(document["jobs"]):
        job |= {"weight": 1.0 + 0.05 * row, "workload": "w1"}
    instance = optsched.Instance.from_document(document)
    generated = optsched.solve(instance, generate_columns=True, solver="prices")
    check(generated, optsched.solve(instance, solver="highs"))
    assert generated.allocation is not None
    C = generated.allocation.classes
    assert len(C) == 40 and C.columns < 40 * len(C.candidates.columns)


def test_gangs_alone_have_nothing_to_generate() -> None:
    document = elastic(0)
    for job in document["jobs"]:
        job["gpus"] = 2
        job.pop("throughput", None), job.pop("options", None)
    instance = optsched.Instance.from_document(document)
    generated = optsched.solve(instance, generate_columns=True)
    check(generated, optsched.solve(instance))
    assert generated.columns_made == ("configurations", 0, 0)


def test_elastic_jobs_from_arrays() -> None:
    given = elastic(3, 20, "usl")
    arrays = {
        "workloads": given["workloads"], "performance": given["performance"], **given["cluster"],
        "workload": np.arange(30) % 5, "gpus": 1, "gpus_max": np.arange(30) % 16 + 1,
    }  # fmt: skip
    instance = optsched.Instance.from_arrays(**arrays)
    assert instance.jobs["j7"].gpus == (1, 8)
    check(optsched.solve(instance, generate_columns=True), optsched.solve(instance, solver="highs"))


# --- the table, bounds and limits -----------------------------------------------------------------------------------


def full_and_pricing(
    seed: int, formulation: str = "max-min-fairness"
) -> tuple[optsched.Solution, ConfigurationPricing]:
    instance = optsched.Instance.from_document(scarce(seed, 20, "usl" if seed % 2 else None))
    chosen = make_formulation(formulation)
    candidates: Candidates = compile(instance, on_demand=True)
    return optsched.solve(instance, formulation), ConfigurationPricing.of(
        chosen.program(chosen.classes(candidates))
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_table_and_the_start_are_all_columns(seed: int) -> None:
    full, pricing = full_and_pricing(seed)
    assert full.allocation is not None
    table, candidates, whole = (
        pricing.table,
        pricing.classes.candidates,
        full.allocation.classes.candidates,
    )
    grown = candidates.with_configurations(np.flatnonzero(~table.column))
    for name in ("kind", "pool", "gpus", "nodes", "rate", "log_sd", "source"):
        assert (getattr(grown.columns, name) == getattr(whole.columns, name)).all(), name
    assert abs(grown.usage - whole.usage).max() == 0
    assert grown.resources.names == whole.resources.names
    assert (table.column.sum() + (~table.column).sum()) == len(table) and table.column.any()


@pytest.mark.parametrize("formulation", ["max-min-fairness", "max-throughput"])
@pytest.mark.parametrize("seed", range(4))
def test_any_duals_bound_the_whole_program(seed: int, formulation: str) -> None:
    full, pricing = full_and_pricing(seed, formulation)
    rng = np.random.default_rng(seed)
    C, arrays = pricing.classes, pricing.program.to_linear().arrays
    for _ in range(10):
        levels = (
            np.ones(len(C))
            if formulation == "max-throughput"
            else rng.random(len(C)) / C.count.sum()
        )
        duals = Duals(rng.random(len(C)) / 5, rng.random(len(C.capacity)) / 10, levels)
        told = dual_bound(arrays, duals.rows(pricing.program))
        assert told is not None and full.objective is not None
        assert told + pricing.left_out(duals) >= full.objective


@pytest.mark.parametrize("seed", range(4))
def test_the_most_that_a_configuration_is_worth_is_that_of_all_columns(seed: int) -> None:
    full, pricing = full_and_pricing(seed)
    assert full.allocation is not None
    C, rng = full.allocation.classes, np.random.default_rng(seed)
    duals = Duals(rng.random(len(C)) / 20, rng.random(len(C.capacity)) / 50, rng.random(len(C)))
    levels = pricing.scale[:, None] * C.throughput.toarray()
    value = (
        duals.levels @ levels - duals.capacity @ C.usage.toarray() - duals.time @ C.member.toarray()
    )
    most = np.zeros(len(C))
    listed = C.candidates.columns.option[C.kind_column] >= 0
    choosing = np.isin(C.class_a, pricing.choosing) & ~listed
    np.maximum.at(most, C.class_a[choosing], value[choosing])
    told, found = pricing.best(duals, np.zeros(len(C)))
    excess = pricing.excess(duals)
    assert told == pytest.approx(excess) and most.max() > 0
    rigid = (
        excess < most - 1e-12
    )  # a pool on which all is a column from the start is not in the table
    start = np.zeros(len(C))
    np.maximum.at(start, pricing.classes.class_a, pricing.program.levels.T @ duals.levels
                  - pricing.classes.usage.T @ duals.capacity - duals.time[pricing.classes.class_a])  # fmt: skip
    assert np.maximum(excess, start)[rigid] == pytest.approx(most[rigid])
    assert (excess <= np.maximum(most, 0) + 1e-12).all()
    assert (len(found) or seed % 2 == 0) and not pricing.table.column[found.cell].any()
    way, curve = pricing.table.way[found.cell], pricing.table.curve_of(found.cell)
    ways = pricing.table.ways
    again = pricing.possible(
        found.klass, pricing.table.pool[curve], ways.gpus[way], ways.nodes[way]
    )
    assert sorted(again.keys(len(pricing.table))) == sorted(found.keys(len(pricing.table)))


@pytest.mark.unit
def test_a_program_with_all_of_the_table_is_that_of_all_columns() -> None:
    full, pricing = full_and_pricing(3)
    table = pricing.table
    owner = table.kind[table.curve_of(np.arange(len(table)))]
    every = [np.flatnonzero((owner == kind) & ~table.column) for kind in pricing.classes.kind]
    chosen = Chosen(
        np.repeat(np.arange(len(every)), [len(cells) for cells in every]), np.concatenate(every)
    )
    program = restricted(pricing, chosen).program
    assert (
        full.allocation is not None and program.classes.columns == full.allocation.classes.columns
    )
    values = np.sort(program.levels.data), np.sort(program.classes.usage.data)
    whole = make_formulation("max-min-fairness").build(full.allocation.classes)
    assert np.allclose(values[0], np.sort(whole.levels.data), rtol=1e-13)  # type: ignore[union-attr]
    assert np.allclose(values[1], np.sort(full.allocation.classes.usage.data), rtol=1e-13)


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_segments_at_the_prices_of_the_start_say_more_than_raised_rents(seed: int) -> None:
    """Both bound the whole program; each end is a configuration that the level of its class is bought with."""
    full, pricing = full_and_pricing(seed)
    start = optsched.solve(replace(pricing.classes.candidates, elastic=None))
    assert start.allocation is not None and start.duals is not None and start.objective is not None
    assert full.objective is not None and start.bound is not None
    C, duals = pricing.classes, Duals.of(start.duals, pricing.program)
    level, nothing = np.full(len(C), start.objective), np.full(len(C), 1e-12)
    raised, ends = segments(pricing, pricing.program, start.allocation.x, level, duals, nothing)
    bound = raised.time @ C.count + raised.capacity @ C.capacity
    assert raised.levels @ C.count == pytest.approx(1)
    assert full.objective * (1 - 1e-9) <= bound < start.bound + 0.9 * pricing.left_out(duals)
    assert pricing.left_out(raised) <= 1e-12
    assert len(ends) and not pricing.table.column[ends.cell].any()


@pytest.mark.unit
def test_first_largest() -> None:
    most, place = first_largest(np.array([1.0, 3.0, 3.0, 2.0, 5.0, 5.0]), np.array([0, 3, 4, 6]))
    assert most.tolist() == [3, 2, 5] and place.tolist() == [1, 3, 4]


@pytest.mark.parametrize("work", [1, 3, 10, 30])
def test_a_run_that_is_stopped_has_a_bound_that_holds(work: int) -> None:
    instance = optsched.Instance.from_document(scarce(3))
    full = optsched.solve(instance)
    stopped = optsched.solve(instance, generate_columns=True, work_limit=work)
    assert stopped.ok and stopped.objective is not None and full.objective is not None
    assert stopped.objective <= full.objective * (1 + 1e-9)
    assert stopped.bound is None or stopped.bound >= full.objective * (1 - 1e-9)
    assert optsched.verify(instance, stopped.to_document()).ok


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("formulation", LINEAR)
def test_columns_that_were_not_made_leave_a_gap_that_is_told(
    formulation: str, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = optsched.Instance.from_document(scarce(6))
    full = optsched.solve(instance, formulation)
    monkeypatch.setattr(
        "optsched.solving.column_generation.configuration_generation.PASSES", passes
    )
    early = optsched.solve(instance, formulation, generate_columns=True, solver="prices")
    assert (
        early.ok
        and early.gap is not None
        and early.bound is not None
        and full.objective is not None
    )
    assert early.status == ("optimal" if early.gap <= 1e-6 else "feasible")
    assert passes > 1 or early.status == "feasible"
    assert (early.bound - full.objective) * (1 if full.sense == "max" else -1) >= -1e-9 * abs(
        full.objective
    )
    assert optsched.verify(instance, early.to_document()).ok


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", LINEAR)
def test_verify_prices_all_configurations(formulation: str) -> None:
    instance = optsched.Instance.from_document(scarce(4))
    document = optsched.solve(
        instance, formulation, solver="prices", generate_columns=True
    ).to_document()
    verified = optsched.verify(instance, document)
    assert verified.ok and verified.bound == "verified", verified.findings
    for field, value in (("possible", 1), ("of", "pairs")):
        wrong = copy.deepcopy(document)
        wrong["columns_made"][field] = value
        assert [finding.field for finding in optsched.verify(instance, wrong).findings] == [
            f"columns_made.{field}"
        ]


def test_verify_refuses_a_bound_of_the_columns_to_start_with_alone() -> None:
    """The optimum of the start is none, though its duals prove it for the columns that the file names."""
    instance = optsched.Instance.from_document(scarce(6))
    honest = optsched.solve(instance, generate_columns=True).to_document()
    assert honest["columns_made"]["made"] > 0
    claim = optsched.solve(replace(compile(instance, on_demand=True), elastic=None)).to_document()
    assert claim["objective"] < honest["objective"] * (1 - 1e-4)
    claim["columns_made"] = honest["columns_made"]
    found = {finding.field for finding in optsched.verify(instance, claim).findings}
    assert {"bound", "status"} <= found


# --- what cannot be generated ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("formulation", "more", "words"), REFUSED)
def test_refusals(formulation: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        optsched.solve(
            optsched.Instance.from_document(elastic(0)), formulation, generate_columns=True, **more
        )


def test_columns_that_a_formulation_admits_itself_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MaxMinFairness, "has_ties", False)  # which those of others may not state
    document = elastic(0)
    document["jobs"].append(
        {"id": "z", "workload": "w0", "gpus": 1, "throughput": {"p": 1.0, "q": 0.0}}
    )
    with refuses("generate_columns: found an option changes which columns there are", UsageError):
        optsched.solve(
            optsched.Instance.from_document(document), agnostic="literal", generate_columns=True
        )


@pytest.mark.unit
def test_pairs_come_first() -> None:
    """Where jobs can share GPUs pairs are generated, and all configurations are columns."""
    document = elastic(1, 12)
    document["colocation"] = [
        {"workloads": ["w0", "w1"], "pool": "q", "gpus": 4, "throughput": [3.0, 3.0]}
    ]
    instance = optsched.Instance.from_document(document)
    generated = optsched.solve(instance, generate_columns=True)
    check(generated, optsched.solve(instance, solver="highs"), 1e-7)
    assert generated.columns_made is not None and generated.columns_made.of == "pairs"


# --- the command line -----------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, plan = tmp_path / "elastic.json", tmp_path / "plan.json"
    instance.write_text(json.dumps(scarce(4)))
    assert main(["solve", str(instance), "--generate-columns", "-v", "-o", str(plan)]) == 0
    told = capsys.readouterr().err
    assert "configurations of" in told and "in use" in told
    assert main(["verify", str(instance), str(plan)]) == 0
    assert json.loads(plan.read_text())["columns_made"]["of"] == "configurations"


def elastic_jobs() -> optsched.Instance:
    """Jobs on 1, 2, 4 or 8 GPUs, of which 1 and 8 are the first columns."""
    return generate("cluster", jobs=12, pools=2, elastic=1.0, tenants=2, seed=1).instance


@pytest.mark.unit
def test_an_optimum_of_0_is_proved_with_all_columns_too() -> None:
    """A sum of logarithms is 0 where every job has its proportional share: no gap is a part of that."""
    jobs = [
        {"id": f"j{row}", "gpus": 2, "weight": weight, "throughput": {"p": rate}}
        for row, (weight, rate) in enumerate(((1, 2.0), (1, 3.0), (2, 3.0), (2, 4.0)))
    ]
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 3, "gpus_per_node": 4}]},
        "jobs": jobs,
    }
    solution = optsched.solve(document, "proportional-fairness", generate_columns=True)
    assert solution.status == "optimal" and solution.ok
    assert solution.objective == pytest.approx(0.0, abs=1e-9)


def test_jobs_that_can_run_nowhere_are_explained_by_all_columns() -> None:
    none = [{"kind": "budget", "limit": 10}, {"kind": "quota", "tenant": "t0", "gpus": 0}]
    instance = elastic_jobs()
    solution = optsched.solve(instance, "alpha-fairness", constraints=none, generate_columns=True)
    assert solution.status == "infeasible"
    whole = optsched.solve(instance, "alpha-fairness", constraints=none)
    assert solution.conflicts == whole.conflicts
    assert optsched.verify(instance, solution.to_document()).ok


def test_jobs_that_the_first_columns_leave_nowhere_may_have_others() -> None:
    instance = elastic_jobs()
    barred = [{"kind": "forbidden", "tenant": "t0", "gpus": [1, 8]}]
    found = optsched.solve(instance, "alpha-fairness", constraints=barred, generate_columns=True)
    whole = optsched.solve(instance, "alpha-fairness", constraints=barred)
    assert found.status == whole.status == "optimal"
    assert found.objective == pytest.approx(whole.objective, rel=1e-6)
