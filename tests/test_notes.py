"""What an answer says of itself: fields that have no effect on it, jobs that are not in it yet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from documents import instance_document
from pydantic import BaseModel

import optsched
from optsched.cli.main import main

# Private names: documents, pages and names are compared with the code
from optsched.formulation.notes import FIELDS
from optsched.instance.documents import InstanceDocument
from optsched.registry import load_constraint, load_formulation, load_ranking, names

Document = dict[str, Any]
POOL = {"name": "v100", "nodes": 2, "gpus_per_node": 1}


def document(*jobs: Document, **more: Any) -> Document:
    rows = [{"id": f"j{row}", "throughput": {"v100": 1.0}} | job for row, job in enumerate(jobs)]
    return instance_document([POOL], rows, **more)


def notes(plain: Document, formulation: str = "max-throughput", **more: Any) -> tuple[str, ...]:
    return optsched.solve(optsched.Instance.from_document(plain), formulation, **more).notes


def option(**more: Any) -> Document:
    return {"throughput": None, "options": [{"pool": "v100", "gpus": 1, "duration": 1.0, **more}]}


RUNS = {"running": {"pool": "v100", "gpus": ["v100-0/0"]}}
TOGETHER = [{"jobs": ["j0", "j1"], "pool": "v100", "throughput": [0.9, 0.9]}]
MIG = {"profile": "1g.5gb", "compute_slices": 1, "memory_slices": 1, "starts": [0]}
STATED: dict[str, Document] = {
    "deadline": document({"deadline": 9.0}, {}),
    "weight": document({"weight": 2.0}, {}),
    "arrival": document({"arrival": 2.0}, {"arrival": 1.0}, now=3.0),
    "tenant": document({"tenant": "a"}, {}, tenants=[{"name": "a"}]),
    "tenant_weight": document(
        {"tenant": "a"}, {"tenant": "b"}, tenants=[{"name": "a", "weight": 2.0}, {"name": "b"}],
        constraints=[{"kind": "quota", "tenant": "a", "gpus": 1}],
    ),
    "queue": document(
        {"tenant": "a"}, {"tenant": "b"}, tenants=[{"name": "a", "policy": "fifo"}, {"name": "b"}],
        constraints=[{"kind": "quota", "tenant": "a", "gpus": 1}],
    ),
    "preemptible": document({"preemptible": False}, {}),
    "running": document(RUNS, {}),
    "after": document({"after": ["j1"]}, {}),
    "restart_cost": document({"restart_cost": 5.0}, {}),
    "exempt_time": document({"exempt_time": 5.0}, {}),
    "checkpoint_interval": document({"checkpoint_interval": 5.0}, {}),
    "isolated_time": document({"history": {"isolated_time": 5.0}}, {}),
    "colocation": document({}, {}, colocation=TOGETHER),
    "value": document(option(value=3.0)),
    "cost": document(option(cost=3.0)),
    "limit": document(option(share=0.5, limit=1.0)),
    "partitions": document({}, cluster={"pools": [POOL | {"partitions": [MIG]}]}),
}  # fmt: skip
UNREAD_BY = {"colocation": "isolated"}
"""Formulations that do not read a field, where that is not max-throughput."""

EVERY = "every program reads it"
NAME = "a name, which other fields and results use"
MACHINE = (
    "what a machine is like; it asks nothing of an answer, and is there for those that need it"
)
ROUNDS = "rounds read it, and programs that count time in rounds"
WHERE_READ = {
    "format": EVERY, "name": NAME, "round": ROUNDS, "now": EVERY, "performance.model": EVERY,
    "throughputs": EVERY, "constraints.kind": EVERY,
    "cluster.topology": MACHINE,
    "cluster.levels": EVERY,
    **{f"cluster.resources.{field}": EVERY for field in ("name", "kind", "capacity", "pool", "nodes")},
    **{f"cluster.pools.{field}": EVERY
       for field in ("name", "gpu", "gpus_per_node", "gpu_memory", "cpus_per_node", "memory_per_node")},
    **{f"cluster.pools.{field}": MACHINE for field in ("cost_per_gpu_hour", "watts_per_gpu", "watts_idle")},
    **{f"cluster.pools.bandwidth.{field}": MACHINE for field in ("intra_node", "node", "leaf")},
    **{f"cluster.pools.partitions.{field}": "partitions"
       for field in ("profile", "compute_slices", "memory_slices", "starts", "memory")},
    **{f"cluster.pools.nodes.{field}": EVERY for field in ("gpus", "cpus", "memory", "state", "available_from")},
    "cluster.pools.nodes.name": NAME,
    **{f"workloads.{field}": EVERY for field in ("throughput", "demand", "gpu_memory")},
    "workloads.restart_cost": "restart_cost",
    "workloads.parameters": "what performance models make rates of",
    "tenants.name": "tenant", "tenants.weight": "tenant_weight", "tenants.policy": "queue",
    **{f"colocation.{field}": "colocation" for field in ("workloads", "jobs", "pool", "gpus", "nodes", "throughput")},
    **{f"jobs.{field}": EVERY for field in ("workload", "gpus.min", "gpus.max", "gpus.levels", "steps", "steps_done",
                                            "throughput")},
    "jobs.id": NAME,
    **{f"jobs.{field}": field for field in ("weight", "arrival", "deadline", "tenant", "preemptible", "restart_cost",
                                            "after")},
    "jobs.deadline_kind": "deadline",
    **{f"jobs.running.{field}": "running" for field in ("pool", "gpus", "since")},
    "jobs.exempt_time": "exempt_time",
    "jobs.checkpoint_interval": "checkpoint_interval",
    "jobs.history.isolated_time": "isolated_time",
    **{f"jobs.options.{field}": EVERY
       for field in ("pool", "gpus", "nodes", "share", "throughput", "duration", "uses")},
    "jobs.options.value": "value", "jobs.options.cost": "cost", "jobs.options.limit": "limit",
    "jobs.options.attributes": "rows of the allocation have a copy",
}  # fmt: skip
"""Every field of the format: who reads it always, or the field of `FIELDS` under which it is reported."""


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def fields_of(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Paths of all fields of a document that have no fields themselves."""
    for name, field in model.model_fields.items():
        inner = list(models_in(field.annotation))
        for part in inner:
            yield from fields_of(part, f"{path}{name}.")
        if not inner:
            yield path + name


def test_every_field_of_the_format_is_read_or_reported() -> None:
    assert set(fields_of(InstanceDocument)) == WHERE_READ.keys()
    always = {
        EVERY,
        NAME,
        MACHINE,
        ROUNDS,
        WHERE_READ["workloads.parameters"],
        WHERE_READ["jobs.options.attributes"],
    }
    assert set(WHERE_READ.values()) - always == FIELDS.keys() == STATED.keys()


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_stated_and_not_read_is_told(field: str) -> None:
    told, reader = FIELDS[field].words, UNREAD_BY.get(field, "max-throughput")
    assert notes(STATED[field], reader) == (
        f"{reader} does not read these fields of the instance, so they have no effect on the answer: {told}",
    )


@pytest.mark.parametrize(
    ("field", "formulation", "constraints"),
    [
        ("deadline", "max-throughput", ["deadlines"]),
        ("weight", "max-min-fairness", []),
        ("tenant", "water-filling", []),
        ("tenant", "max-throughput", [{"kind": "quota", "tenant": "a", "gpus": 1}]),
        ("isolated_time", "finish-time-fairness", []),
        ("arrival", "finish-time-fairness", []),
        ("tenant_weight", "water-filling", []),
        ("queue", "water-filling", []),
        ("preemptible", "max-throughput", ["uninterrupted"]),
        ("running", "max-throughput", ["uninterrupted"]),
        ("running", "allox", []),
        ("colocation", "max-throughput", []),
        ("value", "multiple-choice", []),
        ("cost", "gap", []),
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


def test_something_reads_every_field() -> None:
    """Rates of pairs are read by every formulation that takes columns of two jobs, limits by placements."""
    parts = [load_formulation(name) for name in names("formulation")]
    parts += [load_constraint(kind) for kind in names("constraint")]
    read = frozenset().union(*(part.reads | part.also_reads for part in parts))
    of_rounds = {"restart_cost", "exempt_time", "checkpoint_interval"}
    assert read >= FIELDS.keys() - {"colocation", "limit"} - of_rounds


def test_jobs_that_arrive_later_are_counted() -> None:
    plain = document({}, {"arrival": 5.0}, {"arrival": 5.0})
    (note,) = notes(plain)
    assert note.startswith("2 of 3 jobs have not arrived by now (0 s)")
    assert "optsched simulate" in note and "--at" in note
    assert notes(plain | {"now": 6.0}, "fifo") == ()
    assert notes(plain, "makespan-unrelated") == ()  # it plans them


def test_the_file_has_them_and_is_verified() -> None:
    instance = optsched.Instance.from_document(STATED["deadline"])
    solution = optsched.solve(instance, "max-throughput")
    written = solution.to_document()
    assert written["notes"] == list(solution.notes)
    assert optsched.verify(instance, written | {"notes": ["the words of another version"]}).ok
    assert (
        "notes"
        not in optsched.solve(instance, "max-throughput", constraints=["deadlines"]).to_document()
    )


def test_a_placement_reads_where_jobs_run_and_who_stays() -> None:
    plain = document({"preemptible": False, **RUNS}, {"deadline": 9.0})
    solution = optsched.solve(optsched.Instance.from_document(plain), "max-throughput")
    assert "cannot be preempted" in solution.notes[0] and "where jobs run now" in solution.notes[0]
    promise, note = sorted(optsched.place(solution).notes, reverse=True)
    assert note.endswith("no effect on the answer: deadlines")
    assert "may find no room side by side" in promise


@pytest.mark.parametrize(
    ("formulation", "options", "field"),
    [
        ("water-filling", {"tenants": False}, "tenant"),
        ("drf", {"tenants": False}, "tenant"),
        ("proportional-shares", {"tenants": False}, "tenant"),
        ("fifo", {"variant": "agnostic"}, "colocation"),
    ],
)
def test_options_say_what_is_read(formulation: str, options: dict[str, Any], field: str) -> None:
    instance = optsched.Instance.from_document(STATED[field])
    (note,) = optsched.solve(instance, formulation, options=options).notes
    assert note.endswith(f": {FIELDS[field].words}")


@pytest.mark.parametrize(
    ("ranking", "options", "read"),
    [
        ("edf", {}, {"deadline"}),
        ("slack-first", {}, {"deadline"}),
        ("srtf", {}, set()),
        ("srtf", {"weighted": True}, {"weight"}),
        ("las", {}, set()),
    ],
)
def test_rankings_say_what_they_read(ranking: str, options: dict[str, Any], read: set[str]) -> None:
    assert load_ranking(ranking)(options).reads == read


@pytest.mark.parametrize(
    "command",
    [
        ["pareto", "-f", "max-throughput", "-f", "makespan", "--points", "3"],
        ["simulate", "-p", "max-throughput", "-p", "srtf"],
        ["bench", "-f", "max-throughput", "--seeds", "2"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.process
def test_commands_of_many_answers_print_each_note_once(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "instance.json"
    file.write_text(json.dumps(document({"deadline": 9.0, "steps": 5.0}, {"steps": 5.0})))
    assert main([command[0], str(file), *command[1:]]) == 0
    printed = " ".join("".join(capsys.readouterr()).split())
    readers = 2 if command[0] == "simulate" else 1
    assert (
        printed.count("does not read these fields")
        == printed.count("no effect on the answer: deadlines")
        == readers
    )
