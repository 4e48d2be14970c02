"""`optsched.compare`: rows, refusals, and a document that stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from documents import instance_document
from refusals import refuses, stated

import optsched
from optsched.candidates import Classes
from optsched.errors import InvalidInput, SolverCrashed, SolverUnavailable, UsageError
from optsched.formulation import SideConstraint
from optsched.registry import load_formulation, names
from optsched.study import ComparisonRow, compare, comparison

# Private names: what an answer is made of, before it is put together
from optsched.study.comparison import accepting

ROW = {
    "formulation", "options", "sense", "objective_words", "refused", "status", "objective", "bound", "gap",
    "termination", "reproducible", "certificate", "solver", "packed", "conflicts", "unplaced", "measures", "seconds",
}  # fmt: skip
MEASURES = {
    "jobs", "idle", "smallest_share", "mean_share", "fairness", "utilisation", "cost_per_hour", "makespan", "last_end",
    "deadlines", "deadlines_met",
}  # fmt: skip
FAST = ["makespan", "max-min-fairness", "isolated", "lease"]


def test_all_formulations_that_take_the_instance_are_compared() -> None:
    found = optsched.compare("@quickstart")
    assert isinstance(found, optsched.Comparison)
    expected = {load_formulation(name).name for name in names("formulation")}
    assert (
        {row.formulation for row in found.rows} == expected == set(accepting("optsched-instance/1"))
    )
    assert accepting("another-kind/1") == []
    for row in found.rows:
        if row.formulation in (
            "smd",
            "smd-tight",
            "smd-rounding",
        ):  # jobs with plain rates have no limits
            assert "has plain rates, expected options" in str(row.error)
            continue
        if row.formulation in ("gap", "gap-rounding"):
            assert "expected options with their costs" in str(row.error)
            continue
        if row.formulation == "mig-pack":  # gangs of several GPUs are no slices
            assert "counts slices and single GPUs" in str(row.error)
            continue
        if row.formulation == "allox":  # one GPU each
            assert "has no configuration of exactly one GPU" in str(row.error)
            continue
        assert row.error is None and row.solution is not None and row.measures is not None
        assert row.measures.jobs == 12
        alone = optsched.solve("@quickstart", row.formulation)
        assert row.solution.objective == pytest.approx(alone.objective)


def test_each_formulation_is_best_at_what_it_optimises() -> None:
    found = compare("@quickstart", [*FAST, "max-throughput"])
    ends = {
        row.formulation: row.measures.makespan for row in found.rows if row.measures is not None
    }
    assert ends["makespan"] == min(end for end in ends.values() if end is not None)
    assert ends["max-throughput"] is None  # two jobs get nothing
    row = found["makespan"]
    assert row.measures is not None and row.solution is not None
    assert row.measures.makespan == pytest.approx(row.solution.objective)
    with pytest.raises(KeyError):
        found["max-throughputs"]


def test_the_order_is_that_of_the_question_and_options_make_rows() -> None:
    entries: list[comparison.Entry] = [
        ("alpha-fairness", {"alpha": 4.0}),
        "isolated",
        ("alpha-fairness", {"alpha": 0.5}),
    ]
    seen: list[str] = []
    found = compare("@quickstart", entries, on_row=seen.append)
    assert [(row.formulation, dict(row.options)) for row in found.rows] == [
        ("alpha-fairness", {"alpha": 4.0}), ("isolated", {}), ("alpha-fairness", {"alpha": 0.5})]  # fmt: skip
    assert seen == ["alpha-fairness", "isolated", "alpha-fairness"]
    first, _, last = (row.measures for row in found.rows)
    assert first is not None and last is not None
    assert (first.smallest_share or 0) > (last.smallest_share or 0)


def test_who_refuses_is_a_row_with_the_sentence() -> None:
    found = compare("@quickstart", [*FAST], constraints=["deadlines"])
    refused = {row.formulation: row for row in found.rows if row.error is not None}
    assert set(refused) == {"isolated", "lease"}
    assert stated("constraints: found rows, expected none for lease").holds(refused["lease"].error)
    document = found.to_document()
    assert document["constraints"] == [{"kind": "deadlines", "soft": False, "give_way": "none"}]
    (row,) = (row for row in document["rows"] if row["formulation"] == "isolated")
    assert row["refused"] == str(refused["isolated"].error)
    assert row["measures"] is row["status"] is row["objective"] is None


def test_a_solver_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = comparison.solve

    def crashing(candidates: Any, name: str, **given: Any) -> Any:
        if name == "makespan":
            raise SolverCrashed("solver highs raised: no memory")
        return honest(candidates, name, **given)

    monkeypatch.setattr(comparison, "solve", crashing)
    rows = compare("@quickstart", ["makespan", "isolated"]).rows
    assert (str(rows[0].error), rows[0].solution) == ("solver highs raised: no memory", None)
    assert rows[1].error is None


def test_what_is_not_certified_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    good = optsched.solve("@quickstart", "isolated")
    bad = replace(
        good, certificate=replace(good.certificate, ok=False, problems=("a row is violated",))
    )
    monkeypatch.setattr(comparison, "solve", lambda *_, **__: bad)
    (row,) = compare("@quickstart", ["isolated"]).rows
    assert row.measures is None
    assert row.to_document()["certificate"] == {
        "ok": False,
        "proof": "rule",
        "problems": ["a row is violated"],
    }


def test_an_interrupted_run_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from optsched.errors import Interrupted
    from optsched.solution import Termination

    good = optsched.solve("@quickstart", "isolated")
    monkeypatch.setattr(
        comparison, "solve", lambda *_, **__: replace(good, termination=Termination.INTERRUPTED)
    )
    assert len(compare("@quickstart", FAST).rows) == 1

    def interrupted(*_: Any, **__: Any) -> Any:
        raise Interrupted("interrupted before any feasible point was found")

    monkeypatch.setattr(comparison, "solve", interrupted)
    with pytest.raises(Interrupted):
        compare("@quickstart", FAST)


@pytest.mark.parametrize("name", ["@quickstart", "@infeasible"])
def test_the_document_keeps_its_keys(name: str) -> None:
    document = compare(name, FAST).to_document()
    assert set(document) == {"format", "instance", "constraints", "rows"}
    assert document["format"] == "optsched-comparison/1"
    assert document["instance"] == {"name": name[1:], "sha256": optsched.load(name).sha256}
    for row in document["rows"]:
        assert set(row) == ROW
        assert row["measures"] is None or set(row["measures"]) == MEASURES
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_an_infeasible_row_has_conflicts_and_no_measures() -> None:
    (row,) = compare("@infeasible", ["makespan"]).to_document()["rows"]
    assert (row["status"], row["refused"], row["measures"]) == ("infeasible", None, None)
    assert len(row["conflicts"]) == 3


def test_a_makespan_that_does_not_exist_is_null() -> None:
    row = ComparisonRow(
        "makespan", {}, optsched.solve(optsched.Instance.from_document(EMPTY), "makespan")
    )
    assert row.to_document()["objective"] is None


EMPTY = instance_document({"p": 1}, name="empty")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "there is nothing to compare: no formulation is named"),
        (["makespam"], "formulation: found 'makespam'"),
        (["makespan", "makespan"], "formulation: found makespan with the same options twice"),
        ([("makespan", {"alpha": 1})], "option of makespan: found 'alpha'"),
    ],
)
def test_wrong_questions_are_refused_before_anything_is_read(given: Any, words: str) -> None:
    with refuses(words, UsageError):
        compare("no/such/file.json", given)


def test_a_wrong_instance_is_no_row() -> None:
    with pytest.raises(InvalidInput):
        compare("no/such/file.json", ["makespan"])
    wrong = optsched.Instance.from_document({**EMPTY, "constraints": [{"kind": "wish"}]})
    with refuses("constraints[0]..."):
        compare(wrong, ["makespan"])


def test_a_missing_solver_is_told_by_every_row() -> None:
    rows = compare("@quickstart", ["makespan", "max-throughput"], solver="gurobi9").rows
    assert all(isinstance(row.error, SolverUnavailable) for row in rows)


def test_a_wrong_limit_is_refused_before_anything_is_solved() -> None:
    with refuses("threads: found 'x', expected a whole number", UsageError):
        optsched.compare("@quickstart", threads="x")


def test_every_panel_of_the_picture_has_a_name_and_times_have_units() -> None:
    figure = optsched.compare("@quickstart", ["makespan", "isolated"]).plot().axes.figure
    names = [ax.get_xlabel() for ax in figure.axes]
    assert names[0].startswith("smallest share") and all(names)
    makespan = next(ax for ax in figure.axes if ax.get_xlabel().startswith("makespan"))
    assert any(text.get_text().endswith(" h") for text in makespan.texts)


def test_a_constraint_that_reads_what_is_no_job_array_is_named() -> None:
    class Mine(SideConstraint):
        kind = "mine"
        reads = frozenset({"workload"})

        def rows(self, C: Classes) -> None:
            return None

    with refuses(
        "reads of constraint 'mine': found 'workload', expected job arrays...", UsageError
    ):
        optsched.solve("@quickstart", constraints=[Mine(Mine.Options())])
