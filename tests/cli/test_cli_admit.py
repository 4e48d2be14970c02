"""``optsched admit``: answers, exit codes, wrong words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import optsched

Write = Callable[..., Path]

RATES = {"1": 1.0, "2": 1.5, "4": 2.0}


def job(name: str, deadline: float, **more: Any) -> dict[str, Any]:
    gpus = {"min": 1, "max": 4, "levels": [1, 2, 4]}
    own = {"id": name, "steps": 100.0, "gpus": gpus, "throughput": {"p": RATES}}
    return {**own, "deadline": deadline, **more}


CLUSTER = {
    "format": "optsched-instance/1",
    "name": "one node",
    "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 4}]},
    "jobs": [job("a", 70.0)],
}


@pytest.fixture
def new(tmp_path: Path) -> Callable[..., Path]:
    def written(*jobs: dict[str, Any]) -> Path:
        path = tmp_path / "new.json"
        path.write_text(json.dumps(list(jobs) if len(jobs) != 1 else jobs[0]))
        return path

    return written


def test_admitted(run: Any, write: Write, new: Callable[..., Path]) -> None:
    result = run("admit", write(CLUSTER), "--add", new(job("b", 70.0)))
    assert (result.code, result.complaints) == (0, "")
    assert "one node: 1 of 1 job admitted" in result.out


def test_each_file_of_jobs_counts(run: Any, write: Write, new: Callable[..., Path]) -> None:
    first = new(job("b", 500.0)).rename(write(CLUSTER).with_name("first.json"))
    result = run("admit", write(CLUSTER), "--add", first, "--add", new(job("c", 600.0)), "--json")
    assert [one["job"] for one in result.json["jobs"]] == ["b", "c"]


def test_refused_with_a_proof(run: Any, write: Write, new: Callable[..., Path]) -> None:
    result = run("admit", write(CLUSTER), "--add", new(job("b", 70.0), job("c", 60.0)))
    assert (result.code, result.complaints) == (4, "")
    told = " ".join(result.out.split())
    assert "c is refused, which is proven" in told
    assert "it and a cannot all meet their deadlines" in told
    assert "4 more GPUs of p would let it in" in told


def test_refused_without_a_proof(run: Any, write: Write, new: Callable[..., Path]) -> None:
    wide = job("A", 20.0, gpus=4, throughput={"p": 1.0}, steps=10.0)
    long = job("B", 20.0, gpus=1, throughput={"p": 1.0}, steps=20.0)
    result = run("admit", write(CLUSTER | {"jobs": [wide]}), "--add", new(long), "--no-advice")
    assert result.code == 5
    assert "which is proven" not in result.out


@pytest.mark.property
def test_the_document_is_that_of_the_library(
    run: Any, write: Write, new: Callable[..., Path]
) -> None:
    asked = [job("b", 70.0), job("c", 60.0)]
    path = write(CLUSTER)
    found = run("admit", path, "--add", new(*asked), "--json").json
    assert found == optsched.admit(path, asked).to_document()
    whole = write(CLUSTER | {"jobs": [*CLUSTER["jobs"], *asked]})
    named = run("admit", whole, "--job", "b", "--job", "c", "--json")
    assert named.json["jobs"] == found["jobs"]


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ((), 2, "expected --job ID or --add FILE"),
        (("--job", "z"), 2, 'one node has no job "z"'),
        (("--job", "a", "--prove"), 2, "--prove"),
        (("--add", "nowhere.json"), 3, "nowhere.json"),
    ],
)
def test_wrong_words(run: Any, write: Write, given: tuple[str, ...], code: int, told: str) -> None:
    result = run("admit", write(CLUSTER), *given)
    assert result.code == code
    assert told in result.complaints
    assert len(result.complaints.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "jobs[0]: found 1, expected a job"),
        ("", "found an empty file of jobs, expected a JSON document"),
    ],
)
def test_a_file_that_holds_no_jobs(
    run: Any, write: Write, tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "new.json"
    path.write_text(text)
    result = run("admit", write(CLUSTER), "--add", path)
    assert result.code == 3
    assert told in result.complaints


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ([1], "jobs[1]: found 1, expected a job"),
        ([job("b", 70.0, steps=-1)], "jobs[1].steps: found -1"),
        ([job("b", 70.0), job("b", 70.0)], 'jobs[2].id: found "b" a second time'),
    ],
)
def test_errors_count_jobs_of_both_options(
    run: Any, write: Write, tmp_path: Path, added: list[Any], told: str
) -> None:
    path = tmp_path / "new.json"
    path.write_text(json.dumps(added))
    result = run("admit", write(CLUSTER), "--job", "a", "--add", path)
    assert (result.code, result.out) == (3, "")
    assert told in result.complaints


def test_moments_are_written_as_finely_as_the_time_from_now_asks_for(
    run: Any, write: Write, new: Callable[..., Path]
) -> None:
    now = {"now": 1.7e9, "jobs": []}
    short = job("x", 1.7e9 + 1, gpus=1, steps=1.3, throughput={"p": 1.0})
    result = run("admit", write(CLUSTER | now), "--add", new(short))
    told = " ".join(result.out.split())
    assert "a deadline of 1700000001.3" in told
    assert "has 1 s before its deadline, 1700000001 s" in told
