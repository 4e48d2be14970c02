"""The issue's list of bad input: one clear sentence each, exit code 3, nothing written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import stated

from optsched.errors import InvalidInput

Document = dict[str, Any]
Write = Callable[..., Path]
Refused = Callable[[Path], InvalidInput]


def _set(path: str, value: Any) -> Callable[[Document], None]:
    """Put a value at a path such as ``jobs.0.steps``."""

    def change(document: Document) -> None:
        *parents, last = path.split(".")
        place: Any = document
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if value is ...:
            del place[last]
        elif last == "+":
            place.append(value)
        else:
            place[int(last) if isinstance(place, list) else last] = value

    return change


RATE = "workloads.ResNet-50/64.throughput.v100.1"
PAIR = {
    "workloads": ["ResNet-50/64", "BERT-base/32"],
    "pool": "v100",
    "gpus": 1,
    "throughput": [1.0, 2.0],
}

CHANGES = {
    "wrong format": (_set("format", "optsched-instance/9"), 'format: found "optsched-instance/9"'),
    "missing format": (_set("format", ...), "format: found nothing"),
    "unknown key at the top": (_set("jbos", []), "jbos: found an unknown key 'jbos'"),
    "unknown key in the cluster": (_set("cluster.pool", 1), "cluster.pool: found an unknown key 'pool'"),
    "unknown key in a pool": (
        _set("cluster.pools.0.gpu_count", 1), "cluster.pools[0].gpu_count: found an unknown key 'gpu_count'"),
    "unknown key in a workload": (
        _set("workloads.ResNet-50/64.rate", 1), "workloads.ResNet-50/64.rate: found an unknown key 'rate'"),
    "unknown key in a tenant": (_set("tenants.0.share", 1), "tenants[0].share: found an unknown key 'share'"),
    "unknown key in a job": (_set("jobs.3.step", 1), "jobs[3].step: found an unknown key 'step'"),
    "unknown key in a co-location": (
        _set("colocation", [PAIR | {"x": 1}]), "colocation[0].x: found an unknown key 'x'"),
    "duplicate job": (_set("jobs.1.id", "resnet-50-1"), 'jobs[1].id: found "resnet-50-1" a second time'),
    "duplicate pool": (_set("cluster.pools.1.name", "v100"), 'cluster.pools[1].name: found "v100" a second time'),
    "unknown pool": (
        _set("jobs.0.throughput", {"a100": 1}), "jobs[0].throughput.a100: found no pool or GPU type of the cluster"),
    "unknown tenant": (_set("jobs.0.tenant", "nobody"), 'jobs[0].tenant: found "nobody"'),
    "unknown workload": (_set("jobs.0.workload", "nothing"), 'jobs[0].workload: found "nothing"'),
    "negative rate": (_set(RATE, -1.0), f"{RATE}: found -1.0"),
    "NaN rate": (_set(RATE, math.nan), f"{RATE}: found NaN"),
    "infinite rate": (_set(RATE, math.inf), f"{RATE}: found Infinity"),
    "text rate": (_set(RATE, "fast"), f'{RATE}: found "fast"'),
    "negative steps": (_set("jobs.2.steps", -5), "jobs[2].steps: found -5"),
    "gang of 0": (_set("jobs.2.gpus", 0), "jobs[2].gpus: found 0"),
    "gang of 1.5": (_set("jobs.2.gpus", 1.5), "jobs[2].gpus: found 1.5"),
    "min > max": (_set("jobs.2.gpus", {"min": 4, "max": 2}), "jobs[2].gpus"),
    "no pools": (_set("cluster.pools", []), "cluster.pools: found []"),
    "deadline before arrival": (_set("jobs.4.deadline", 0), "jobs[4].deadline: found 0, before..."),
    "co-location with an unknown workload": (
        _set("colocation", [PAIR | {"workloads": ["ResNet-50/64", "x"]}]), 'colocation[0].workloads[1]: found "x"'),
    "co-location of one": (_set("colocation", [PAIR | {"workloads": ["ResNet-50/64"]}]), "colocation[0].workloads[1]"),
    "co-location with one rate": (_set("colocation", [PAIR | {"throughput": [1.0]}]), "colocation[0].throughput[1]"),
    "co-location on an unknown pool": (_set("colocation", [PAIR | {"pool": "x"}]), 'colocation[0].pool: found "x"'),
    "unknown performance model": (_set("performance", {"model": "guess"}), 'performance.model: found "guess"'),
    "unknown side constraint": (_set("constraints", [{"kind": "wish"}]), 'constraints[0]: found {"kind": "wish"}'),
    "wrong option of a side constraint": (
        _set("constraints", [{"kind": "deadlines", "soft": 3}]), "constraints[0].soft: found 3"),
}  # fmt: skip


@pytest.fixture
def refused(run: Any, tmp_path: Path) -> Callable[[Path], InvalidInput]:
    """The error with which every command refuses an instance, in one line; nothing is written."""

    def refused(path: Path) -> InvalidInput:
        before = sorted(tmp_path.iterdir())
        given = (
            ("solve", path, "-o", tmp_path / "out.json"),
            ("solve", path, "--json"),
            ("validate", path),
            ("explain", path),
            ("export", path, "-f", "makespan", "-o", tmp_path / "out.mps"),
        )
        lines = set()
        for arguments in given:
            result = run(*arguments)
            assert (result.code, result.out) == (3, "")
            assert sorted(tmp_path.iterdir()) == before
            lines.add(result.err)
        (text,) = lines
        assert text.startswith("optsched: error: ")
        assert text.count("\n") == 1
        assert len(text) < 520
        assert isinstance(result.error, InvalidInput)
        return result.error

    return refused


@pytest.mark.parametrize("name", CHANGES)
def test_a_document_with_one_thing_wrong(
    name: str, document: Document, write: Write, refused: Refused
) -> None:
    change, told = CHANGES[name]
    change(document)
    error = refused(write(document))
    assert stated(told).holds(error), error


GARBAGE = {
    "empty": b"",
    "blank": b" \n\t ",
    "truncated": json.dumps({"format": "optsched-instance/1", "jobs": [1, 2, 3]}).encode()[:-4],
    "text": b"jobs: 3",
    "a list": b"[1, 2]",
    "a number": b"5",
    "null": b"null",
    "not UTF-8": b'{"format": "\xff\xfe"}',
    "10 MB of zeros": bytes(10_000_000),
    "10 MB of brackets": b"[" * 10_000_000,
    "10 MB of noise": bytes(range(256)) * 39_063,
    "10 MB of text": b"a" * 10_000_000,
    "an npz that is none": b"PK\x03\x04" + bytes(1000),
    "deep nesting": b'{"format": "optsched-instance/1", "jobs": '
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_file_that_is_no_instance(name: str, write: Write, refused: Refused) -> None:
    assert refused(write(GARBAGE[name])).file.endswith("/instance.json")


@pytest.mark.parametrize("suffix", ["yaml", "npz"])
def test_garbage_in_other_formats(suffix: str, write: Write, refused: Refused) -> None:
    assert refused(write(b"\x00\x01garbage: [", f"instance.{suffix}")).file.endswith(
        f"/instance.{suffix}"
    )


def test_a_missing_file_and_a_folder(tmp_path: Path, refused: Refused) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        assert stated(f"found no readable file at {path}...").holds(refused(path))


def test_standard_input(run: Any) -> None:
    result = run("solve", "-", stdin=b'{"format": 3}')
    assert result.refused("standard input: format: found 3", 3)
    assert result.err.startswith(
        "optsched: error: standard input: format: found 3, expected "
    )  # as it is printed


def test_the_file_is_named(run: Any, tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty.json", tmp_path / "broken.json"
    empty.write_text("")
    broken.write_text("{")
    for given in (
        ("solve", empty),
        ("verify", "@quickstart", empty),
        ("plot", "@quickstart", empty),
    ):
        result = run(*given, *(("-o", tmp_path / "p.png") if given[0] == "plot" else ()))
        assert result.refused(f"{empty}: found an empty ...", 3)
    assert run("solve", "@quickstart", "--start", broken).refused(
        f"{broken}: found text that is not JSON...", 3
    )


def test_valid_but_odd_jobs_are_solved_and_listed(run: Any, small: Document, write: Write) -> None:
    """A gang larger than its pool, a job that runs nowhere and a job with no step left are no errors."""
    small["jobs"].append(
        {"id": "nowhere", "gpus": 1, "steps": 5, "throughput": {"fast": 0.0, "slow": 0.0}}
    )
    result = run("solve", write(small), "--json")
    assert result.code == 0
    reasons = {row["job"]: row["reason"] for row in result.json["unplaced"]}
    assert reasons.keys() == {"wide", "done", "nowhere"}
    assert "needs 9 GPUs, but only 2 are usable" in reasons["wide"]
    assert reasons["done"] == "no step left to do"
    assert "rate 0 on 1 GPU" in reasons["nowhere"]
    out = run("solve", write(small)).out
    assert "Not placed: 3 jobs\n" in out
