"""`verify`: right files pass in every guise, and no tampered file does."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched import Instance, registry
from optsched.assembly import make_formulation
from optsched.candidates import Classes
from optsched.errors import InvalidInput, SolverCrashed, UsageError
from optsched.formulation import Formulation, FormulationOptions
from optsched.instance import instance_bytes
from optsched.program import AllocationProgram, Total
from optsched.solution import Termination, Values
from optsched.solvers import HighsSession, Limits
from optsched.verify import Finding, Verification, verify

pytestmark = pytest.mark.property

Document = dict[str, Any]
LITTLE = 1e-3
"""Relative size of a tampering."""


class Fair(Formulation):
    """A concave total, as proportional and alpha-fairness will be."""

    name = "fair"
    reads = frozenset({"weight"})

    class Options(FormulationOptions):
        function: str = "log"
        exponent: float = 0.5

    def build(self, C: Classes) -> AllocationProgram:
        return AllocationProgram(
            C, Total(C.weight, self.options.function, self.options.exponent), C.throughput
        )


@pytest.fixture(autouse=True, scope="module")
def _fair_in_the_catalogue() -> Iterator[None]:
    known = registry.catalogue
    fair = {"fair": f"{__name__}:Fair"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            registry,
            "catalogue",
            lambda what: {**known(what), **(fair if what == "formulation" else {})},
        )
        yield


# --- instances and solutions -----------------------------------------------------------------------------------------


@cache
def arrays() -> Instance:
    """Classes of several equal jobs, some of which share GPUs."""
    rates = np.repeat([[4.0, 1.5], [3.0, 2.0], [9.0, 0.0]], [5, 4, 2], axis=0)
    pairs = [(0, 5, [2.5, 1.9]), (1, 2, [2.2, 2.6]), (6, 7, [1.8, 1.7])]
    return Instance.from_arrays(
        pools={"big": 4, "small": 3},
        throughput=rates,
        steps=np.repeat([4e4, 6e4, 3e4], [5, 4, 2]),
        weight=np.repeat([1.0, 1.0, 3.0], [5, 4, 2]),
        colocation=[
            {"jobs": [f"j{a}", f"j{b}"], "pool": "big", "gpus": 1, "throughput": rate}
            for a, b, rate in pairs
        ],
        name="arrays",
    )


@cache
def classes() -> Instance:
    """Workloads whose jobs share GPUs with jobs of their own class and of another."""
    workloads = {
        "a": {"throughput": {"g": {"1": 5.0}, "h": {"1": 4.0}}},
        "b": {"throughput": {"g": {"1": 2.0}}},
    }
    return Instance.from_arrays(
        pools={"g": 3, "h": 1},
        workloads=workloads,
        workload=np.repeat([0, 1], [5, 4]),
        steps=1000.0,
        colocation=[
            {"workloads": ["a", "b"], "pool": "g", "gpus": 1, "throughput": [4.0, 1.8]},
            {"workloads": ["a", "a"], "pool": "g", "gpus": 1, "throughput": [3.5, 3.5]},
            {"workloads": ["b", "b"], "pool": "g", "gpus": 1, "throughput": [1.7, 1.7]},
        ],
        name="classes",
    )


@cache
def options() -> Instance:
    """Explicit options with shares, attributes and resources; a job too large, one done, one that comes later."""
    here = [
        {"pool": "g", "gpus": 1, "throughput": 2.0, "share": 0.5},
        {"pool": "g", "gpus": 2, "throughput": 5.0, "attributes": {"servers": 2, "mode": "fast"}},
        {"pool": "g", "gpus": 2, "throughput": 4.0, "attributes": {"servers": 1, "mode": "fast"}},
        {"pool": None, "gpus": 0, "throughput": 1.0, "uses": {"licence": 1}},
    ]
    return Instance.from_document(
        instance_document(
            [{"name": "g", "nodes": 2, "gpus_per_node": 2, "cost_per_gpu_hour": 2.0}],
            [
                {"id": "a", "options": here, "steps": 1000},
                {"id": "b.c", "options": here, "steps": 1000, "weight": 2},
                {"id": "c", "options": here[:2], "steps": 500},
                {"id": "wide", "throughput": {"g": 3.0}, "gpus": 9, "steps": 10},
                {"id": "done", "throughput": {"g": 3.0}, "steps": 10, "steps_done": 10},
                {"id": "later", "throughput": {"g": 3.0}, "steps": 10, "arrival": 99},
            ],
            resources=[{"name": "licence", "kind": "renewable", "capacity": 1.5}],
            name="options",
        )
    )


SHIPPED = ("quickstart", "packing")
OWN = {"arrays": arrays, "classes": classes, "options": options}

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{
        f"quickstart {name} {solver}": ("quickstart", name, {"solver": solver})
        for name in ("max-min-fairness", "makespan", "max-throughput")
        for solver in ("highs", "clarabel")
    },
    "quickstart isolated": ("quickstart", "isolated", {}),
    "quickstart deadlines": ("quickstart", "max-min-fairness", {"constraints": ["deadlines"]}),
    "quickstart per job": ("quickstart", "makespan", {"classes": False}),
    "quickstart log": ("quickstart", "fair", {}),
    "quickstart power": ("quickstart", "fair", {"function": "power", "exponent": 0.5}),
    "packing": ("packing", "max-min-fairness", {}),
    "packing clarabel": ("packing", "max-min-fairness", {"solver": "clarabel"}),
    "packing isolated": ("packing", "isolated", {}),
    "packing integral": ("packing", "max-throughput", {"integral": True}),
    "arrays": ("arrays", "max-min-fairness", {}),
    "arrays per job": ("arrays", "max-min-fairness", {"classes": False}),
    "arrays integral": ("arrays", "max-throughput", {"integral": True}),
    "classes": ("classes", "max-throughput", {"solver": "clarabel"}),
    "classes integral": ("classes", "max-throughput", {"integral": True}),
    "classes log": ("classes", "fair", {}),
    "options": ("options", "max-min-fairness", {}),
    "options throughput": ("options", "max-throughput", {"normalise": "proportional", "solver": "clarabel"}),
}  # fmt: skip


@cache
def instance(name: str) -> Instance:
    return OWN[name]() if name in OWN else optsched.load(f"@{name}")


@cache
def _solved(case: str) -> str:
    name, formulation, given = CASES[case]
    return json.dumps(optsched.solve(instance(name), formulation, **given).to_document())


def solved(case: str) -> tuple[Instance, Document]:
    """The instance of a case and a fresh copy of its solution, as read from a file."""
    return instance(CASES[case][0]), json.loads(_solved(case))


def fields(verification: Verification) -> set[str]:
    return {finding.field for finding in verification.findings}


# --- what is right passes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_a_right_file_passes(case: str) -> None:
    given, document = solved(case)
    verification = verify(given, document)
    assert verification.ok, str(verification)
    assert verification.findings == ()
    assert verification.bound == ("consistent" if "integral" in case else "verified")
    assert str(verification) == f"the solution is right; bound: {verification.bound}"


@pytest.mark.parametrize("case", CASES)
def test_a_right_file_passes_when_solved_again(case: str) -> None:
    verification = verify(*solved(case), resolve=True)
    assert verification.ok, str(verification)


@pytest.mark.parametrize("case", ["quickstart deadlines", "packing", "options", "arrays"])
@pytest.mark.parametrize("kind", ["json", "yaml", "npz"])
def test_every_format_of_the_instance_is_the_same_instance(
    case: str, kind: str, tmp_path: Path
) -> None:
    given, document = solved(case)
    path = tmp_path / f"instance.{kind}"
    path.write_bytes(instance_bytes(given, kind))
    optsched.write_solution(
        optsched.solve(given, CASES[case][1], **CASES[case][2]), tmp_path / "solution.json"
    )
    for solution in (document, tmp_path / "solution.json", str(tmp_path / "solution.json")):
        verification = verify(path, solution)
        assert verification.ok, str(verification)


def test_the_function_can_be_called_after_its_package_was_imported() -> None:
    import optsched.verify as module

    given, document = solved("quickstart isolated")
    assert optsched.verify(given, document).ok
    assert module.verify is verify
    assert not optsched.verify(given, {**document, "objective": 9.0}).ok


def test_pairs_may_be_written_in_either_order_and_rows_in_any() -> None:
    given, document = solved("classes")
    rows = document["allocation"]
    assert any("jobs" in row for row in rows)
    random.Random(0).shuffle(rows)
    for row in rows:
        if "jobs" in row:
            row["jobs"].reverse()
    assert verify(given, document).ok


@pytest.mark.parametrize(
    ("name", "steps"),
    [("max-min-fairness", 0.0), ("makespan", 0.0), ("max-throughput", 0.0), ("isolated", 0.0)],
)
def test_without_any_job_to_place(name: str, steps: float) -> None:
    given = Instance.from_arrays(pools={"g": 1}, throughput=[[1.0], [2.0]], steps=steps)
    document = optsched.solve(given, name).to_document()
    assert len(document["unplaced"]) == 2
    assert verify(given, document).ok
    document["objective"] = 1.0
    assert "objective" in fields(verify(given, document))


def test_a_makespan_that_does_not_exist() -> None:
    """A job that may use none of a licence makes no progress: the makespan is infinite, in the file null."""
    given = Instance.from_document(
        instance_document(
            {"g": 1},
            [{"id": "a", "workload": "w", "steps": 10}],
            resources=[{"name": "licence", "kind": "renewable", "capacity": 0}],
            name="never",
            workloads={"w": {"throughput": {"g": 1.0}, "demand": {"licence": 1}}},
        )
    )
    document = optsched.solve(given, "makespan").to_document()
    assert (document["objective"], document["bound"], document["gap"]) == (None, None, None)
    json.dumps(document, allow_nan=False)
    assert verify(given, document).ok


def test_a_gap_that_was_asked_for_allows_optimal() -> None:
    given = optsched.load("@large")
    document = optsched.solve(given, "max-throughput", integral=True, gap=0.01).to_document()
    assert document["gap"] > 1e-4
    assert document["solver"]["gap"] == 0.01
    assert document["status"] == "optimal"
    assert verify(given, document).ok
    document["solver"]["gap"] = None
    assert {"status", "termination"} <= fields(verify(given, document))


@pytest.mark.parametrize("name", ["max-min-fairness", "max-throughput"])
def test_a_stopped_run_is_verified_as_what_it_is(name: str) -> None:
    given = instance("quickstart")
    document = optsched.solve(given, name, solver="clarabel", work_limit=5).to_document()
    assert document["termination"] == "work_limit"
    assert document["status"] == "feasible"
    verification = verify(given, document)
    assert verification.ok, str(verification)
    document["status"] = "optimal"
    assert "status" in fields(verify(given, document))


def test_nothing_found_within_the_limits() -> None:
    given = instance("quickstart")
    document = optsched.solve(
        given, solver="highs", work_limit=1, constraints=["deadlines"]
    ).to_document()
    assert document["status"] == "limit"
    verification = verify(given, document)
    assert verification.ok, str(verification)
    assert verification.bound == "consistent"
    for name, value in (
        ("objective", 1.0),
        ("throughput", {"lstm-11": 1.0}),
        ("status", "error"),
        ("gap", 0.0),
    ):
        assert not verify(given, {**document, name: value}).ok, name


# --- duals that are not written --------------------------------------------------------------------------------------


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make quickstart a program of many rows."""
    monkeypatch.setattr("optsched.solution.solution.DUAL_ROWS", 5)
    monkeypatch.setattr("optsched.verify.numbers.DUAL_ROWS", 5)


@pytest.mark.usefixtures("few_rows")
def test_a_bound_whose_duals_are_left_out_is_not_verifiable() -> None:
    given = instance("quickstart")
    solution = optsched.solve(given, "makespan")
    document = solution.to_document()
    assert document["duals"] is None
    verification = verify(given, document)
    assert verification.ok, str(verification)
    assert verification.bound == "not verifiable"
    assert verify(given, solution.to_document(all_duals=True)).bound == "verified"
    del document["prices"]["k80"]
    assert fields(verify(given, document)) == {"prices"}
    document = solution.to_document()
    document["bound"] = document["objective"] * 1.01
    document["gap"] = abs(document["objective"] - document["bound"]) / document["objective"]
    assert {"bound", "status"} <= fields(verify(given, document))  # on the wrong side of a minimum


def test_duals_of_few_rows_must_be_written() -> None:
    given, document = solved("quickstart makespan highs")
    document["duals"] = None
    verification = verify(given, document)
    assert "duals" in fields(verification)
    assert verification.bound == "not verifiable"


# --- tampering -------------------------------------------------------------------------------------------------------

Tampering = tuple[str, Callable[[Document], None], set[str]]
"""What is done, how, and fields one of which must be named."""


def _path(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _owner(document: Document, path: tuple[str | int, ...]) -> Any:
    for part in path[:-1]:
        document = document[part]  # type: ignore[index]
    return document


def put(path: tuple[str | int, ...], value: Any, *names: str) -> Tampering:
    def change(document: Document) -> None:
        _owner(document, path)[path[-1]] = value

    return f"{_path(path)} = {value!r}", change, {_path(path), *names}


def drop(path: tuple[str | int, ...], *names: str) -> Tampering:
    def change(document: Document) -> None:
        del _owner(document, path)[path[-1]]

    return f"{_path(path)} dropped", change, {_path(path), *names}


def numbers(document: Document) -> Iterator[tuple[tuple[str | int, ...], float]]:
    """Numbers to change, with their paths: all single ones, several of each long list."""
    for name in ("objective", "bound", "gap"):
        yield (name,), document[name]
    rows = [i for i, row in enumerate(document["allocation"]) if row["fraction"] > 1e-4]
    for row in sorted(set(rows[:3] + rows[len(rows) // 2 :][:2] + rows[-2:])):
        yield ("allocation", row, "fraction"), document["allocation"][row]["fraction"]
    for job in [job for job, rate in document["throughput"].items() if rate][:4]:
        yield ("throughput", job), document["throughput"][job]
    for name, price in document["prices"].items():
        if price > 1e-6:
            yield ("prices", name), price
    duals = document["duals"] or {}
    largest = max((abs(dual) for block in duals.values() for dual in block), default=0.0)
    for name, block in duals.items():
        for row in [i for i, dual in enumerate(block) if abs(dual) > 1e-3 * largest][:4]:
            yield ("duals", name, row), block[row]
    for name, value in document["metrics"].items():
        if isinstance(value, dict):
            for key in value:
                yield ("metrics", name, key), value[key]
        else:
            yield ("metrics", name), value


def changes_of_numbers(document: Document) -> Iterator[Tampering]:
    for path, value in numbers(document):
        for factor in (1 + LITTLE, 1 - LITTLE) if path[0] in ("bound", "duals") else (1 + LITTLE,):
            if value:  # a relative change leaves 0 and null as they are
                # of duals, those of the capacity rows can be told by their prices, of the others only the whole
                names = ("duals",) if path[0] == "duals" and path[1] != "capacity" else ()
                yield put(path, value * factor, *names)


def changes_of_the_allocation(document: Document) -> Iterator[Tampering]:
    row = document["allocation"][0]
    jobs = row.get("jobs", [row.get("job")])
    rates = {f"throughput.{job}" for job in jobs}
    pools = [*document["metrics"]["utilisation"], "nowhere"]
    for pool in pools:
        if pool != row["pool"]:
            yield put(("allocation", 0, "pool"), pool, "allocation[0].gpus", *rates)
    for name in ("gpus", "nodes"):
        yield put(("allocation", 0, name), row[name] + 1, *rates)
    yield put(("allocation", 0, "share"), 0.25)
    yield put(("allocation", 0, "attributes"), {"servers": 7})
    yield put(("allocation", 0, "option"), 77, "allocation[0].pool")
    yield put(("allocation", 0, "fraction"), -row["fraction"])
    yield put(("allocation", 0, "fraction"), 1.5)
    yield put(("allocation", 0, "job"), "nobody", "allocation[0]")
    yield put(("allocation", 0, "jobs"), [jobs[0], jobs[0]], "allocation[0]")
    yield drop(("allocation", 0), *rates)
    for name in ("fraction", "pool", "gpus", "nodes"):
        yield drop(("allocation", 0, name))

    def twice(document: Document) -> None:
        document["allocation"].append(copy.deepcopy(row))

    yield "allocation[0] twice", twice, {"allocation[0].fraction", *rates}


def changes_of_words(document: Document) -> Iterator[Tampering]:
    other = {"optimal": "feasible", "feasible": "optimal"}[document["status"]]
    for status in (other, "infeasible", "unbounded", "limit", "error", "splendid"):
        yield put(("status",), status)
    yield put(("termination",), "infeasible")
    yield put(("termination",), "time_limit", "reproducible")
    yield put(("reproducible",), False)
    yield put(("sense",), "min" if document["sense"] == "max" else "max")
    for source in {"dual", "solver", "none", "relaxation"} - {document["bound_source"]}:
        yield put(("bound_source",), source, "certificate.proof")
    for proof in {"dual", "claimed", "none", "rule"} - {document["certificate"]["proof"]}:
        yield put(("certificate", "proof"), proof)
    yield put(("certificate", "ok"), False)
    yield put(("certificate", "problems"), ["none really"])
    for name, value in document["certificate"]["residuals"].items():
        yield put(("certificate", "residuals", name), value + LITTLE)
        yield drop(("certificate", "residuals", name))
    yield put(("conflicts",), ["pool v100 has 8 usable GPUs"])
    yield put(("instance", "sha256"), "0" + document["instance"]["sha256"][:-1])
    yield put(("instance", "name"), "another")
    for name in {"max-min-fairness", "makespan", "isolated"} - {document["formulation"]}:
        yield put(
            ("formulation",),
            name,
            "sense",
            "options",
            *(f"options.{key}" for key in document["options"]),
        )
    yield put(("options", "colour"), "blue")
    defaults = registry.load_formulation(document["formulation"]).Options().to_document()
    for key in document["options"]:
        if (
            key != "exponent" or document["options"]["function"] == "power"
        ):  # no other function reads it
            yield put(("options", key), 17.5, "objective")
        if key not in defaults:  # an option that is not named is at its default
            yield drop(("options", key))
        elif document["options"][key] != defaults[key]:
            yield drop(("options", key), "objective", "bound_source")
    yield put(("constraints",), [{"hint": "no kind"}], "constraints[0].kind")
    yield put(("constraints",), [{"kind": "deadlines", "soft": 3}], "constraints[0].soft")
    yield put(("unplaced",), [*document["unplaced"], {"job": "nobody", "reason": "so"}], "unplaced[0].job",
              f"unplaced[{len(document['unplaced'])}].job")  # fmt: skip
    for row, entry in enumerate(document["unplaced"]):
        yield put(("unplaced", row, "reason"), entry["reason"] + ", they say")
        yield drop(("unplaced", row), "unplaced")
    yield put(("throughput", "nobody"), 1.0)
    yield drop(("throughput", next(iter(document["throughput"]))))
    for name in document["prices"]:
        yield drop(("prices", name))
    yield put(("prices", "gold"), 1.0)
    for name in document["duals"] or {}:
        yield drop(("duals", name))
        yield put(("duals", name), [*document["duals"][name], 0.0])
    if document["duals"] is not None:
        yield put(("duals", "gold"), [1.0])
        yield put(("duals",), None)
    for name in document["metrics"]:
        yield drop(("metrics", name))
    yield put(("metrics", "gold"), 1.0)


def changes_of_keys(document: Document) -> Iterator[Tampering]:
    for name in sorted(
        document.keys() - {"notes", "format"}
    ):  # notes are words of the version that wrote the file; without its format a document is no solution
        yield drop((name,))
    yield put(("gold",), 1)
    yield put(("objective",), float("nan"))
    yield put(("objective",), "1.0")
    yield put(("objective",), True)
    yield put(("classes",), "yes")


WORDS = {
    "quickstart deadlines",
    "quickstart isolated",
    "arrays integral",
    "classes log",
    "options throughput",
}
"""Cases in which everything else is changed, too."""


def tamperings(case: str, document: Document) -> list[Tampering]:
    more = (changes_of_the_allocation, changes_of_words, changes_of_keys) if case in WORDS else ()
    return [tampering for maker in (changes_of_numbers, *more) for tampering in maker(document)]


def refused_by_name(verification: Verification, names: set[str]) -> bool:
    """Whether a finding stands at one of the fields, or tells of it."""
    return not verification.ok and any(
        finding.field in names or any(name in finding.message for name in names)
        for finding in verification.findings
    )


@pytest.mark.parametrize("case", CASES)
def test_every_tampered_file_is_refused_by_name(case: str) -> None:
    given, original = solved(case)
    missed = []
    for what, change, names in tamperings(case, original):
        document = copy.deepcopy(original)
        change(document)
        if document == original:
            continue
        verification = verify(given, document)
        if not refused_by_name(verification, names):
            missed.append((what, [str(finding) for finding in verification.findings[:5]]))
    assert not missed


def test_the_tamperings_are_many_and_real() -> None:
    changed = 0
    for case in CASES:
        _, original = solved(case)
        for _, change, _ in tamperings(case, original):
            document = copy.deepcopy(original)
            change(document)
            changed += document != original
    assert changed >= 800


def _tampered_instances(document: Document) -> Iterator[tuple[str, Document]]:
    def changed(path: tuple[str | int, ...], value: Any) -> tuple[str, Document]:
        other = copy.deepcopy(document)
        _owner(other, path)[path[-1]] = value
        return _path(path), other

    workload = next(iter(document["workloads"]))
    for pool, rates in document["workloads"][workload]["throughput"].items():
        count = next(iter(rates))
        rate = rates[count] if isinstance(rates[count], float) else rates[count]["1"]
        yield changed(("workloads", workload, "throughput", pool, count), rate * (1 + LITTLE))
    yield changed(("cluster", "pools", 0, "nodes"), document["cluster"]["pools"][0]["nodes"] + 1)
    for name, factor in (("weight", 1 + LITTLE), ("steps", 1 - LITTLE)):
        yield changed(("jobs", 0, name), document["jobs"][0].get(name, 1.0) * factor)


@pytest.mark.parametrize(
    "case",
    ["quickstart max-min-fairness highs", "quickstart deadlines", "packing", "packing isolated"],
)
def test_a_solution_of_another_instance_is_refused(case: str) -> None:
    given, document = solved(case)
    for what, other in _tampered_instances(given.to_document()):
        assert "instance.sha256" in fields(verify(Instance.from_document(other), document)), what


def test_what_is_not_installed_here_says_nothing_against_a_file() -> None:
    instance = optsched.load("@quickstart")
    document = optsched.solve(instance).to_document()
    with refuses("formulation: found 'colleagues'...", UsageError):
        verify(instance, document | {"formulation": "colleagues"})
    with refuses("constraint: found 'colleagues'...", UsageError):
        verify(instance, document | {"constraints": [{"kind": "colleagues"}]})


def test_a_forged_hash_does_not_help() -> None:
    """With the hash of the other instance in the file, the numbers give it away."""
    given, document = solved("quickstart makespan highs")
    for what, other in _tampered_instances(given.to_document()):
        changed = Instance.from_document(other)
        forged = {**document, "instance": {"name": changed.name, "sha256": changed.sha256}}
        found = fields(verify(changed, forged))
        assert "instance.sha256" not in found
        # makespan does not read weights; these change nothing but the hash
        if "weight" in what:
            assert not found
        elif "throughput" not in what:
            assert found & {"objective", "bound", "metrics.utilisation.v100"}, what
        elif any(
            row["job"] == "resnet-50-1" and row["pool"] in what for row in document["allocation"]
        ):
            assert "throughput.resnet-50-1" in found
            assert found & {"certificate.residuals.duals", "bound"}, what


# --- forgeries in which several numbers agree ------------------------------------------------------------------------


def test_a_fraction_and_its_throughput_are_named_both() -> None:
    given, document = solved("quickstart max-min-fairness highs")
    document["allocation"][4]["fraction"] *= 1 - LITTLE
    job = document["allocation"][4]["job"]
    found = fields(verify(given, document))
    rows = {
        f"allocation[{i}].fraction"
        for i, row in enumerate(document["allocation"])
        if row["job"] == job
    }
    assert {f"throughput.{job}", *rows} <= found
    others = {path for path in found if path.startswith(("allocation[", "throughput."))}
    assert others == {f"throughput.{job}", *rows}


def test_equal_jobs_cannot_be_treated_unequally() -> None:
    """Moving time between jobs of a class changes no class total, yet one of them no longer has the common level."""
    given, document = solved("arrays")
    rows = [
        row
        for row in document["allocation"]
        if row.get("job") in ("j3", "j4") and row["pool"] == "big"
    ]
    assert len(rows) == 2
    for row, sign in zip(rows, (1, -1), strict=True):
        row["fraction"] += sign * 0.01
        document["throughput"][row["job"]] += sign * 0.01 * 4.0
    verification = verify(given, document)
    told = [finding for finding in verification.findings if "share equally" in finding.message]
    assert {finding.field for finding in told} == {
        f"allocation[{document['allocation'].index(row)}].fraction" for row in rows
    }


def test_a_job_cannot_run_longer_than_all_the_time() -> None:
    """Two jobs of a class of five: the class total stays, one job runs twice."""
    given, document = solved("classes integral")
    rows = [row for row in document["allocation"] if "jobs" in row]
    first, second = rows[0]["jobs"][0], rows[1]["jobs"][0]
    rows[1]["jobs"][0] = first
    document["throughput"][first] += document["throughput"][second]
    document["throughput"][second] = 0.0
    verification = verify(given, document)
    assert any(
        f"job {first} runs for 2 of the time" in finding.message
        for finding in verification.findings
    )


def test_an_allocation_beyond_capacity_is_told_in_the_users_words() -> None:
    given, document = solved("quickstart isolated")
    document = optsched.solve(given, "max-throughput").to_document()
    pool = document["allocation"][0]["pool"]
    for row in document["allocation"]:
        row["fraction"] = 1.0
    found = [
        finding for finding in verify(given, document).findings if finding.field == "allocation"
    ]
    assert any(
        "row capacity[" in finding.message and "usable GPU" in finding.message for finding in found
    ), pool


def test_a_better_bound_than_the_duals_prove_is_refused() -> None:
    given, document = solved("quickstart max-throughput highs")
    for name, block in document["duals"].items():
        document["duals"][name] = [dual * 1.01 for dual in block]
    verification = verify(given, document)
    assert {"bound", "duals", "prices.v100", "duals.capacity[0]"} <= fields(verification)
    assert verification.bound == "not verifiable"


def test_a_suboptimal_allocation_with_a_forged_claim_is_found_by_solving_again() -> None:
    """What a program without duals claims is consistent; that it is wrong shows when it is solved again."""
    given, document = solved("packing integral")
    solo = optsched.solve(given, "max-throughput", integral=True, constraints=[]).allocation
    assert solo is not None
    x = solo.x.copy()
    x[np.flatnonzero(x)[0]] -= 1.0
    (finding,) = verify(given, _document_of(given, document, x)).findings
    assert finding.field == "bound" and "a point that needs no solver" in finding.message
    greedy = make_formulation("max-throughput", {"integral": True}).program(solo.classes)
    assert isinstance(greedy, AllocationProgram)
    worse = _document_of(given, document, greedy.known_point())
    verification = verify(given, worse)
    assert verification.ok, str(verification)
    assert verification.bound == "consistent"
    assert {"objective", "bound"} <= fields(verify(given, worse, resolve=True))


def _document_of(given: Instance, document: Document, x: np.ndarray) -> Document:
    """A file that says that x is optimal, all numbers in agreement."""
    from optsched.solution import Allocation
    from optsched.solution.solution import allocation_metrics

    solution = optsched.solve(given, "max-throughput", integral=True)
    assert solution.allocation is not None
    allocation = Allocation(solution.allocation.classes, x, True)
    names = given.jobs_table.names
    total = float(allocation.throughput.sum())
    return {
        **document,
        "allocation": allocation.to_records(),
        "throughput": {names[i]: float(rate) for i, rate in enumerate(allocation.throughput)},
        "metrics": allocation_metrics(allocation),
        "objective": total,
        "bound": total,
        "gap": 0.0,
    }


def test_a_claim_is_no_proof_where_the_solver_gives_duals() -> None:
    """What is said to be fractions of time after all is a linear program, whose bound needs no trust."""
    solution = optsched.solve("@quickstart", "max-throughput", integral=True)
    document = solution.to_document()
    document["options"]["integral"] = False
    told = {
        finding.field: finding.message
        for finding in optsched.verify(solution.instance, document).findings
    }
    assert (
        told["bound_source"]
        == 'found "solver", expected "dual": no job is whole, and highs gives duals'
    )
    document["solver"]["name"] = "scip"  # which gives none: its word is no proof either
    told = {
        finding.field: finding.message
        for finding in optsched.verify(solution.instance, document).findings
    }
    assert "bound_source" not in told and told["status"].startswith(
        'found "optimal", expected "feasible"'
    )


def test_a_feasible_solution_that_is_better_than_its_claimed_bound() -> None:
    given, document = solved("packing integral")
    document["bound"] = document["objective"] * 0.9
    document["gap"] = abs(document["objective"] - document["bound"]) / document["objective"]
    document["status"] = "feasible"
    document["termination"] = "work_limit"
    verification = verify(given, document)
    assert fields(verification) == {"bound"}
    assert "contradicts" in verification.findings[0].message


@pytest.mark.parametrize("fraction", [-0.25, 1.5, 1e300])
def test_a_fraction_is_a_fraction(fraction: float) -> None:
    given, document = solved("quickstart log")
    document["allocation"][2]["fraction"] = fraction
    verification = verify(given, document)
    told = next(
        finding for finding in verification.findings if finding.field == "allocation[2].fraction"
    )
    assert told.message == f"found {fraction!r}, expected a fraction of the time, from 0 to 1"


def test_a_rule_is_checked_against_its_rule() -> None:
    """Halving every share keeps everything feasible and in agreement, but it is not the rule."""
    given, document = solved("quickstart isolated")
    for row in document["allocation"]:
        row["fraction"] /= 2
    for job in document["throughput"]:
        document["throughput"][job] /= 2
    document["objective"] /= 2
    found = fields(verify(given, document))
    assert "objective" in found
    assert {f"allocation[{row}].fraction" for row in range(len(document["allocation"]))} <= found


# --- constraints -----------------------------------------------------------------------------------------------------


def test_the_constraints_of_the_instance_cannot_be_left_out() -> None:
    document = instance("quickstart").to_document()
    constrained = Instance.from_document({**document, "constraints": [{"kind": "deadlines"}]})
    free = optsched.solve(instance("quickstart"), "max-min-fairness").to_document()
    free["instance"] = {"name": constrained.name, "sha256": constrained.sha256}
    verification = verify(constrained, free)
    assert fields(verification) == {"constraints[0]"}
    right = optsched.solve(constrained, "max-min-fairness").to_document()
    assert verify(constrained, right).ok
    capped = Instance.from_document({**document, "constraints": [{"kind": "budget", "limit": 1e6}]})
    right = optsched.solve(capped, "max-min-fairness").to_document()
    assert verify(capped, right).ok
    right["constraints"][0]["limit"] = 2e6
    assert fields(verify(capped, right)) == {"constraints[0]"}


def test_a_constraint_that_the_instance_asks_for_twice() -> None:
    budget = {"kind": "budget", "limit": 1e6}
    document = instance("quickstart").to_document() | {"constraints": [budget, budget]}
    solution = optsched.solve(document, "max-min-fairness")
    assert len(solution.constraints) == 1
    assert verify(Instance.from_document(document), solution.to_document()).ok


def test_rows_of_ones_own_cannot_be_verified() -> None:
    given = instance("quickstart")

    def extend(program: Any, variables: Any, classes: Classes) -> None:
        program.constrain(np.ones((1, classes.columns)) @ variables["x"] <= 5.0, name="mine")

    document = optsched.solve(given, "max-throughput", extend=extend).to_document()
    verification = verify(given, document, resolve=True)
    assert [finding.field for finding in verification.findings] == ["constraints[0]"]
    assert "cannot be verified" in verification.findings[0].message
    assert verification.bound == "not verifiable"


def test_a_rule_takes_no_constraints() -> None:
    given, document = solved("quickstart isolated")
    document["constraints"] = [{"kind": "deadlines", "soft": False, "give_way": "none"}]
    assert fields(verify(given, document)) == {"constraints"}


def test_an_option_that_the_file_does_not_name_is_at_its_default() -> None:
    given, document = solved("quickstart makespan highs")
    assert document["options"].pop("agnostic") is False
    assert verify(given, document).ok
    given, document = solved("options throughput")
    assert document["options"].pop("normalise") == "proportional"
    assert "objective" in fields(verify(given, document))


def test_an_option_that_needs_another() -> None:
    given, document = solved("quickstart makespan highs")
    document["options"]["agnostic"] = True
    verification = verify(given, document)
    assert fields(verification) == {"options"}
    assert "reference_pool" in verification.findings[0].message


def test_deadlines_bind_each_whole_job_of_a_class() -> None:
    """Both jobs need 4 steps/s; together they can have 11, but only one of them gets 10 and the other 1."""
    given = Instance.from_arrays(
        pools={"fast": 1, "slow": 1},
        throughput=[[10.0, 1.0], [10.0, 1.0]],
        steps=4 * 3600.0,
        deadline=3600.0,
    )
    solution = optsched.solve(given, "max-throughput", integral=True, constraints=["deadlines"])
    assert solution.status == "infeasible"
    assert verify(given, solution.to_document()).ok
    assert optsched.solve(given, "max-throughput", constraints=["deadlines"]).status == "optimal"


# --- infeasible ------------------------------------------------------------------------------------------------------


@cache
def _infeasible(name: str, integral: bool) -> str:
    given = optsched.load("@infeasible")
    return json.dumps(
        optsched.solve(given, name, **({"integral": True} if integral else {})).to_document()
    )


@pytest.mark.parametrize(
    ("name", "integral"),
    [
        ("max-min-fairness", False),
        ("max-throughput", False),
        ("max-throughput", True),
        ("fair", False),
    ],
)
def test_infeasibility_is_proved_again(name: str, integral: bool) -> None:
    given = optsched.load("@infeasible")
    original = json.loads(_infeasible(name, integral))
    assert original["status"] == "infeasible"
    verification = verify(given, original, resolve=True)
    assert verification.ok, str(verification)
    assert verification.bound == "verified"
    violation = original["certificate"]["residuals"]["least_violation"]
    for what, change, names in [
        put(("conflicts",), []),
        put(("conflicts", 0), "pool a100 has 5 usable GPUs"),
        put(("explanation",), "cut off", "reproducible"),
        put(("certificate", "residuals", "least_violation"), violation * (1 + LITTLE)),
        put(("certificate", "proof"), "none"),
        put(("certificate", "ok"), False),
        put(("objective",), 1.0),
        put(("bound",), 1.0),
        put(("gap",), 0.0),
        put(("throughput", "lstm-7"), 1.0, "throughput"),
        put(("prices", "a100"), 1.0, "prices"),
        put(("metrics", "jobs"), 7, "metrics"),
        put(("duals",), {}),
        put(
            ("allocation",),
            [{"job": "lstm-7", "pool": "v100", "gpus": 1, "nodes": 1, "fraction": 1.0}],
        ),
        put(("termination",), "optimal"),
        put(("status",), "optimal", "termination"),
        put(("status",), "unbounded"),
        put(("status",), "limit", "termination"),
        put(("bound_source",), "dual"),
    ]:
        document = copy.deepcopy(original)
        change(document)
        assert refused_by_name(verify(given, document), names), what


def test_conflicts_that_do_not_conflict() -> None:
    given, document = (
        optsched.load("@infeasible"),
        json.loads(_infeasible("max-min-fairness", False)),
    )
    del document["conflicts"][0]
    verification = verify(given, document)
    assert fields(verification) == {"conflicts"}
    assert "nothing shows that these requirements conflict" in verification.findings[0].message


def test_a_run_that_fails_shows_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The infeasible document is checked by one run, its conflicts by a later one."""
    runs = []
    run = HighsSession.run

    def fails_later(self: HighsSession, limits: Limits) -> Values:
        runs.append(None)
        return run(self, limits) if len(runs) < 3 else Values(Termination.ERROR)

    given, document = (
        optsched.load("@infeasible"),
        json.loads(_infeasible("max-min-fairness", False)),
    )
    monkeypatch.setattr(HighsSession, "run", fails_later)
    with pytest.raises(SolverCrashed):
        verify(given, document)


def test_a_feasible_instance_is_not_infeasible() -> None:
    given, document = instance("quickstart"), json.loads(_infeasible("max-min-fairness", False))
    document["instance"] = {"name": given.name, "sha256": given.sha256}
    verification = verify(given, document)
    assert fields(verification) == {"status"}
    assert "an allocation exists" in verification.findings[0].message
    assert verification.bound == "not verifiable"


def test_a_deadline_that_has_passed() -> None:
    given = Instance.from_arrays(
        pools={"g": 1}, throughput=[[1.0], [2.0]], steps=9.0, now=5.0, deadline=[4.0, np.inf]
    )
    document = optsched.solve(given, "max-min-fairness", constraints=["deadlines"]).to_document()
    assert document["status"] == "infeasible"
    assert verify(given, document, resolve=True).ok
    for what, change, names in [
        put(("conflicts", 0), "job j1 is late"),
        put(("conflicts",), []),
        put(("status",), "optimal"),
        put(("constraints",), [], "status"),
        put(("objective",), 1.0),
        put(("certificate", "proof"), "dual"),
        put(("allocation",), [{"job": "j0", "pool": "g", "gpus": 1, "nodes": 1, "fraction": 1.0}]),
    ]:
        changed = copy.deepcopy(document)
        change(changed)
        assert refused_by_name(verify(given, changed), names), what
    free = optsched.solve(given, "max-min-fairness").to_document()
    free["constraints"] = document["constraints"]
    assert "status" in fields(verify(given, free))


# --- unreadable, misshapen, and anything else ------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"a": 1', b"[" * 5000])
def test_unreadable_files_are_invalid_input(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "solution.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput):
        verify(instance("quickstart"), path)
    with pytest.raises(InvalidInput):
        verify(instance("quickstart"), tmp_path / "missing.json")
    with pytest.raises(InvalidInput):
        verify(tmp_path / "missing.json", {})


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        ("[]", "found [], expected a solution: an object"),
        ("null", "found null, expected a solution: an object"),
        ('"solution"', 'found "solution", expected a solution: an object'),
        ("{}", 'format: found nothing, expected a solution of the format "optsched-solution/1"'),
        ('{"format": "optsched-solution/2"}', 'format: found "optsched-solution/2"'),
        ('{"format": []}', "format: found []"),
    ],
)
def test_json_that_is_no_solution_is_refused(content: str, refusal: str, tmp_path: Path) -> None:
    path = tmp_path / "solution.json"
    path.write_text(content)
    with refuses(refusal):
        verify(instance("quickstart"), path)


def test_a_mapping_that_json_cannot_hold() -> None:
    _, document = solved("quickstart isolated")
    for value in ({1, 2}, b"bytes", object()):
        with refuses("found a mapping that JSON cannot hold, expected a solution"):
            verify(instance("quickstart"), {**document, "options": value})


JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 10**400, -(10**30), 0.5, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), "",
    "x", "v100", "\ud800", [], {}, [[]], [None], {"": None}, {"kind": "extend"}, [{"kind": "deadlines"}], ["a", "b"],
    [1e308],
]  # fmt: skip


def _places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield (*path, key)
        yield from _places(inner, (*path, key))


@pytest.mark.parametrize(
    "case",
    [
        "quickstart max-min-fairness highs",
        "options",
        "classes integral",
        "quickstart isolated",
        "arrays",
    ],
)
def test_junk_is_a_finding_and_never_an_exception(case: str) -> None:
    given, original = solved(case)
    chance = random.Random(case)
    places = [path for path in _places(original) if path != ("format",)]
    for _ in range(120):
        document = copy.deepcopy(original)
        path = chance.choice(places)
        _owner(document, path)[path[-1]] = chance.choice(JUNK)
        if document == original or path[0] in ("timings", "solver", "notes"):
            continue
        verification = verify(given, document)
        assert isinstance(str(verification), str)
        if _matters(original, document, path):
            assert not verification.ok, (path, _owner(document, path)[path[-1]])


@pytest.mark.parametrize(
    ("formulation", "path", "value"),
    [
        ("water-filling", ("stages", 0, "kept", "closes"), []),
        ("finish-time-fairness", ("allocation", 4, "fraction"), 1e-300),
        ("alpha-fairness", ("options", "alpha"), 1e-300),
        ("max-min-fairness", ("constraints",), [{"kind": []}]),
    ],
)
def test_more_junk_is_a_finding(
    formulation: str, path: tuple[str | int, ...], value: object
) -> None:
    given = instance("quickstart")
    document = optsched.solve(given, formulation).to_document()
    _owner(document, path)[path[-1]] = value
    assert not verify(given, document).ok


def _matters(original: Document, document: Document, path: tuple[str | int, ...]) -> bool:
    """Whether a change is more than rounding or another way to write the same."""
    old, new = (_owner(source, path)[path[-1]] for source in (original, document))
    if path[0] == "classes":
        return "integral" not in str(original["options"]) or not isinstance(new, bool)
    if isinstance(old, float | int) and isinstance(new, float | int) and not isinstance(old, bool):
        return isinstance(new, bool) or not old - 1e-9 <= new <= old + 1e-9
    return bool(old != new)


def test_a_verification_tells_what_is_wrong() -> None:
    verification = Verification(
        (Finding("objective", "found 1, expected 2"), Finding("", "odd")), "not verifiable"
    )
    assert (
        str(verification)
        == "the solution is refused: 2 findings\n  objective: found 1, expected 2\n  odd"
    )
    many = Verification(tuple(Finding(f"f{i}", "wrong") for i in range(50)), "consistent")
    assert str(many).endswith("... and 30 more")
    assert str(Verification((Finding("gap", "no"),), "consistent")).startswith(
        "the solution is refused: 1 finding\n"
    )
