"""Wrong laws and limits: the field, what was found, what was expected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parameter_server_cases import REFERENCE, gpu_document, options_document
from pydantic import BaseModel
from refusals import refuses

import optsched
from optsched import Instance

# Private names: the steps by which laws become columns
from optsched.candidates import servers
from optsched.errors import UsageError
from optsched.performance import parameter_server_documents

PATH = "workloads.law0.parameters.parameter_server"


def changed(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """Set fields of the first law; None removes."""

    def change(law: dict[str, Any]) -> None:
        for name, value in fields.items():
            if value is None:
                del law[name]
            else:
                law[name] = value

    return change


def merged(field: str, **fields: Any) -> Callable[[dict[str, Any]], None]:
    """Set entries of an object of the first law; None removes."""

    def change(law: dict[str, Any]) -> None:
        for name, value in fields.items():
            if value is None:
                del law[field][name]
            else:
                law[field][name] = value

    return change


WRONG: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (changed(law=None), ".law: found nothing, expected this key"),
    (changed(law="ps"), ".law: found \"ps\", expected one of 'ps-sync' or 'ps-async'"),
    (changed(law=7), ".law: found 7, expected one of 'ps-sync' or 'ps-async'"),
    (changed(worker=None), ".worker: found nothing, expected this key"),
    (changed(server=None), ".server: found nothing, expected this key"),
    (changed(limit=None), ".limit: found nothing, expected this key"),
    (changed(coefficients=None), ".coefficients: found nothing, expected this key"),
    (changed(batch=0), ".batch: found 0, expected a number above 0"),
    (changed(bach=2), ".bach: found an unknown key 'bach', expected one of the format's keys (did you mean batch?)"),
    (changed(law="ps-async"), ".coefficients.e: found an unknown key 'e', expected one of the format's keys"),
    (merged("coefficients", a="3"), '.coefficients.a: found "3", expected a number'),
    (merged("coefficients", b=-1), ".coefficients.b: found -1, expected a number of at least 0"),
    (changed(coefficients={"a": 0}), ".coefficients: found only zeros, expected at least one coefficient above 0"),
    (merged("worker", r9=1), ".worker.r9: found an unknown resource, expected one of g, r0, r1, r2"),
    (merged("limit", cpu=1), ".limit.cpu: found an unknown resource, expected one of g, r0, r1, r2"),
    (merged("server", r0=-1), ".server.r0: found -1, expected a number of at least 0"),
    (merged("limit", r1=None), ".limit.r1: found nothing, expected a limit, as each worker uses r1"),
    (changed(worker={"r0": 0}), ".worker: found no amount above 0, expected something that a worker uses"),
    (changed(server={}), ".server: found no amount above 0, expected something that a server uses"),
    (changed(value={}), ".value: found neither of sigmoid and constant, expected exactly one of them"),
    (
        changed(value={"constant": 1, "sigmoid": [1, 1, 1]}),
        ".value: found both of sigmoid and constant, expected exactly one of them",
    ),
    (changed(value={"constant": -1}), ".value.constant: found -1, expected a number of at least 0"),
    (changed(value={"sigmoid": [1, 1]}), ".value.sigmoid[2]: found nothing, expected an entry"),
    (
        changed(value={"sigmoid": [1, -1, 1]}),
        ".value.sigmoid[1]: found -1.0, expected a number of at least 0, as the value must not grow with the duration",
    ),
    (changed(value=3), ".value: found 3, expected an object"),
    (changed(limit=dict.fromkeys(("r0", "r1", "r2"), 1e5)),
     ".limit: found room for ..., expected a limit with at most 1,000,000"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_law(change: Callable[[dict[str, Any]], None], words: str) -> None:
    document = REFERENCE.document()
    for resource in document["cluster"]["resources"]:
        resource["capacity"] = 1e9
    change(document["workloads"]["law0"]["parameters"]["parameter_server"])
    with refuses(f"{PATH}{words}..."):
        optsched.compile(Instance.from_document(document))


def test_no_object() -> None:
    document = REFERENCE.document()
    document["workloads"]["law0"]["parameters"]["parameter_server"] = [1]
    with refuses("workloads.law0.parameters.parameter_server: found [1], expected an object"):
        optsched.compile(Instance.from_document(document))


def test_a_law_beside_a_throughput() -> None:
    document = REFERENCE.document()
    document["workloads"]["law0"]["throughput"] = {"g": 1.0}
    with refuses(f"{PATH}: found a law beside a throughput, expected one of the two..."):
        optsched.compile(Instance.from_document(document))


def test_a_consumable_resource() -> None:
    document = REFERENCE.document()
    document["cluster"]["resources"][2]["kind"] = "consumable"
    with refuses(
        "workloads.law0.parameters.parameter_server.worker.r2: found a consumable resource, expected a renewable one..."
    ):
        optsched.compile(Instance.from_document(document))


@pytest.mark.parametrize(
    ("field", "name", "amount", "words"),
    [
        (
            "worker",
            "fast",
            1.5,
            "workloads.net.parameters.parameter_server.worker.fast: found 1.5, expected a whole number of GPUs",
        ),
        (
            "server",
            "plain",
            1,
            "workloads.net.parameters.parameter_server.server.plain: found GPUs of fast, plain, expected "
            "GPUs of one pool",
        ),
        (
            "worker",
            "plain.memory",
            1,
            "workloads.net.parameters.parameter_server.worker.plain.memory: found an unknown resource, "
            "expected one of fast, plain, fast...",
        ),
    ],
)
def test_wrong_gpus(field: str, name: str, amount: float, words: str) -> None:
    document = gpu_document()
    law = document["workloads"]["net"]["parameters"]["parameter_server"]
    law[field][name], law["limit"][name] = amount, 1
    with refuses(words):
        optsched.compile(Instance.from_document(document))


def test_too_many_workers_are_told_before_they_are_counted() -> None:
    document = REFERENCE.document()
    for resource in document["cluster"]["resources"]:
        resource["capacity"] = 1e60
    law = document["workloads"]["law0"]["parameters"]["parameter_server"]
    law["limit"] = {"r0": 1e50, "r1": 1e50, "r2": 1e50}
    with refuses(
        "workloads.law0.parameters.parameter_server.limit: found room for at least 9,007,199,254,740,992 "
        "pairs of workers and servers"
    ):
        optsched.compile(Instance.from_document(document))


def test_too_many_columns_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "MOST_COLUMNS", 243)
    with refuses("workloads: found room for 244 pairs of workers and servers in 4 kinds of jobs"):
        optsched.compile(REFERENCE.instance())


def test_as_many_pairs_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    most = int(optsched.compile(REFERENCE.instance()).kinds.laws.count_pairs().max())
    monkeypatch.setattr(parameter_server_documents, "MOST_PAIRS", most)
    optsched.compile(REFERENCE.instance())
    monkeypatch.setattr(parameter_server_documents, "MOST_PAIRS", most - 1)
    with refuses(
        f"workloads.law2.parameters.parameter_server.limit: found room for {most} pairs..."
    ):
        optsched.compile(REFERENCE.instance())


# --- limits of jobs with options -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["smd", "smd-tight"])
@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (5, ": found 5, expected an object"),
        ({"r": -1}, ".r: found -1, expected a number of at least 0"),
        ({"s": 1}, ".s: found an unknown resource, expected one of g, r"),
        ({"g": 1}, '.r: found nothing, expected a limit, as an option of job "a" uses r'),
    ],
)
def test_wrong_limits_of_options(name: str, limit: Any, words: str) -> None:
    instance = Instance.from_document(options_document(limit))
    with refuses(f"workloads.w.parameters.limit{words}..."):
        optsched.solve(instance, name)
    assert optsched.solve(instance, "multiple-choice").objective == pytest.approx(
        15
    )  # needs no limit


@pytest.mark.parametrize("name", ["smd", "smd-tight"])
def test_options_without_a_limit(name: str) -> None:
    instance = Instance.from_document(options_document(None))
    with refuses(
        'job "a": found options and no limit, expected workloads.w.parameters.limit', UsageError
    ):
        optsched.solve(instance, name)
    assert optsched.solve(instance, "multiple-choice").objective == pytest.approx(
        15
    )  # needs no limit


def test_options_without_a_workload() -> None:
    document = options_document({"r": 4})
    del document["jobs"][1]["workload"]
    expected = "a workload with parameters.limit"
    with refuses(f'job "b": found options and no limit, expected {expected}', UsageError):
        optsched.solve(Instance.from_document(document), "smd")


def test_jobs_with_plain_rates() -> None:
    document = options_document({"r": 4})
    document["jobs"][2] = {"id": "c", "throughput": {"g": 1.0}}
    with refuses('job "c": found plain rates, expected options, or a workload...', UsageError):
        optsched.solve(Instance.from_document(document), "smd-tight")


def test_a_limit_that_forgets_what_only_a_worse_option_uses() -> None:
    document = options_document({"r": 4})
    document["cluster"]["resources"].append({"name": "s", "capacity": 1})
    document["jobs"][1]["options"][2]["uses"]["s"] = 1
    with refuses(
        "workloads.w.parameters.limit.s: found nothing, expected a limit, as an option of job..."
    ):
        optsched.solve(Instance.from_document(document), "smd")


def test_a_job_that_only_shares_gpus() -> None:
    document = options_document({"r": 4})
    document["jobs"][2] = {"id": "c", "throughput": {"g": {"2": 1.0}}}
    document["colocation"] = [{"jobs": ["a", "c"], "pool": "g", "throughput": [1.0, 1.0]}]
    with refuses('job "c": found plain rates', UsageError):
        optsched.solve(Instance.from_document(document), "smd")


def test_what_is_not_in_the_program_needs_no_limit() -> None:
    document = options_document({"r": 4})
    document["jobs"][2] = {"id": "c", "throughput": {"g": 1.0}, "steps": 0}
    solution = optsched.solve(Instance.from_document(document), "smd")
    assert solution.objective == pytest.approx(9) and solution.unplaced == (
        ("c", "no step left to do"),
    )


# --- the documentation -----------------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "instance-format.md"


def section() -> str:
    return DOCS.read_text().partition("### Parameter servers\n")[2].partition("\n## ")[0]


def test_the_documented_fields() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in re.findall(r"^\|.*\|$", section(), re.M)
    ]
    told = {name.strip("`"): default for name, default, _ in rows[2:]}
    fields = parameter_server_documents.SyncDocument.model_fields
    assert list(told) == list(fields)
    for name, field in fields.items():
        value = None if field.is_required() else field.default
        text = json.dumps(value.model_dump() if isinstance(value, BaseModel) else value)
        assert told[name] == ("required" if field.is_required() else f"`{text}`"), name


def test_the_documented_example() -> None:
    (text,) = re.findall(r"^```text\n(.*?)^```$", section(), re.M | re.S)
    document = gpu_document()
    document["workloads"]["net"] = json.loads("{" + text.strip() + "}")
    document["cluster"]["pools"][0] |= {"name": "v100", "cpus_per_node": 64}
    columns = optsched.compile(Instance.from_document(document)).columns
    assert columns.workers.max() == 8
    row = columns.workers.tolist().index(4)
    expected = (
        0.02 * 512 / 4
        + 0.3
        + 0.4 * 4 / columns.servers[row]
        + 0.01 * 4
        + 0.01 * columns.servers[row]
    )
    assert columns.rate[row] == pytest.approx(1 / expected)
