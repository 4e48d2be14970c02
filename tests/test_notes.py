"""What an answer says of itself: fields that have no effect on it, jobs that are not in it yet."""

from __future__ import annotations

from typing import Any

import pytest

import optsched
from optsched.notes import FIELDS, notes_on
from optsched.registry import load_constraint, load_formulation, names

Document = dict[str, Any]
POOL = {"name": "v100", "nodes": 2, "gpus_per_node": 1}


def document(*jobs: Document, **more: Any) -> Document:
    rows = [{"id": f"j{row}", "throughput": {"v100": 1.0}} | job for row, job in enumerate(jobs)]
    return {"format": "optsched-instance/1", "cluster": {"pools": [POOL]}, "jobs": rows, **more}


def notes(plain: Document, formulation: str = "max-throughput", **more: Any) -> tuple[str, ...]:
    return optsched.solve(optsched.Instance.from_document(plain), formulation, **more).notes


STATED: dict[str, Document] = {
    "deadline": document({"deadline": 9.0}, {}),
    "weight": document({"weight": 2.0}, {}),
    "tenant": document({"tenant": "a"}, {}, tenants=[{"name": "a"}]),
    "after": document({"after": ["j1"]}, {}),
    "restart_cost": document({"restart_cost": 5.0}, {}),
    "isolated_time": document({"history": {"isolated_time": 5.0}}, {}),
    "value": document({"throughput": None, "options": [{"pool": "v100", "gpus": 1, "duration": 1.0, "value": 3.0}]}),
    "cost": document({"throughput": None, "options": [{"pool": "v100", "gpus": 1, "duration": 1.0, "cost": 3.0}]}),
    "partitions": document({}) | {"cluster": {"pools": [POOL | {"partitions": [
        {"profile": "1g.5gb", "compute_slices": 1, "memory_slices": 1, "starts": [0]}
    ]}]}},
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_stated_and_not_read_is_told(field: str) -> None:
    told = FIELDS[field].words
    assert notes(STATED[field]) == (
        f"max-throughput does not read these fields of the instance, so they have no effect on the answer: {told}",
    )


@pytest.mark.parametrize(
    ("field", "formulation", "constraints"),
    [
        ("deadline", "max-throughput", ["deadlines"]),
        ("weight", "max-min-fairness", []),
        ("tenant", "water-filling", []),
        ("tenant", "max-throughput", [{"kind": "quota", "tenant": "a", "gpus": 1}]),
        ("isolated_time", "finish-time-fairness", []),
        ("value", "multiple-choice", []),
        ("after", "makespan-unrelated", []),
    ],
)
def test_what_is_read_is_not(field: str, formulation: str, constraints: list[Any]) -> None:
    assert notes(STATED[field], formulation, constraints=constraints) == ()


def test_defaults_and_equal_weights_are_no_statements() -> None:
    assert notes(document({"weight": 2.0, "arrival": 0.0}, {"weight": 2.0})) == ()


def test_several_fields_are_one_note() -> None:
    plain = document({"deadline": 9.0, "weight": 2.0}, {"tenant": "a"}, tenants=[{"name": "a"}])
    assert notes(plain) == (
        "max-throughput does not read these fields of the instance, so they have no effect on the answer:"
        " deadlines, weights and tenants",
    )


def test_what_nothing_reads_is_what_the_words_say() -> None:
    """A formulation that comes to read one of these must change its words."""
    parts = [load_formulation(name) for name in names("formulation")]
    parts += [load_constraint(kind) for kind in names("constraint")]
    read = frozenset().union(*(part.reads | part.also_reads for part in parts))
    assert {name for name, field in FIELDS.items() if "no formulation reads" in field.words} == {"cost", "partitions"}
    assert read >= FIELDS.keys() - {"cost", "partitions", "restart_cost"}
    assert not read & {"cost", "partitions"}


def test_jobs_that_arrive_later_are_counted() -> None:
    plain = document({}, {"arrival": 5.0}, {"arrival": 6.0})
    (note,) = notes(plain)
    assert note.startswith("2 of 3 jobs have not arrived by now (0 s)")
    assert "optsched simulate" in note and "--at" in note
    assert notes(plain | {"now": 6.0}) == ()
    assert notes(plain, "makespan-unrelated") == ()  # it plans them


def test_the_file_has_them_and_is_verified() -> None:
    instance = optsched.Instance.from_document(STATED["deadline"])
    solution = optsched.solve(instance, "max-throughput")
    written = solution.to_document()
    assert written["notes"] == list(solution.notes) == list(notes_on_again(solution))
    assert optsched.verify(instance, written).ok
    assert "notes" not in optsched.solve(instance, "max-throughput", constraints=["deadlines"]).to_document()


def notes_on_again(solution: optsched.Solution) -> tuple[str, ...]:
    return notes_on(load_formulation(solution.formulation)(), solution.candidates)
