"""The JSON Schema of the format agrees with the reader, as far as a schema can."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from optsched.errors import InvalidInput
from optsched.instance import Instance, json_schema

Document = dict[str, Any]
SCHEMA: dict[str, Any] = json_schema()


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    return jsonschema.Draft202012Validator(SCHEMA)


def test_is_json() -> None:
    assert json.loads(json.dumps(SCHEMA, allow_nan=False)) == SCHEMA
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_good_documents(validator: jsonschema.Draft202012Validator, document: Document) -> None:
    validator.validate(document)
    validator.validate(Instance.from_document(document).to_document())


BAD: list[tuple[str, Any]] = [
    ("format", ...),
    ("format", "optsched-instance/2"),
    ("jobs", ...),
    ("jobs", {}),
    ("jobs.0", 5),
    ("jobs.0.id", ...),
    ("jobs.0.id", ""),
    ("jobs.0.id", 3),
    ("jobs.0.step", 1),
    ("jobs.0.steps", -1),
    ("jobs.0.steps", "many"),
    ("jobs.0.steps", True),
    ("jobs.0.weight", 0),
    ("jobs.0.gpus", 0),
    ("jobs.0.gpus", 1.5),
    ("jobs.0.gpus", True),
    ("jobs.0.gpus", {"min": 1}),
    ("jobs.0.gpus", {"min": 1, "max": 2, "step": 1}),
    ("jobs.1.gpus.levels", []),
    ("jobs.0.preemptible", 1),
    ("jobs.0.deadline_kind", "soon"),
    ("jobs.0.deadline", "2h"),
    ("jobs.0.after", "b"),
    ("jobs.0.throughput", 40.2),
    ("jobs.0.throughput.v100", -1),
    ("jobs.0.throughput.v100", {"1": "fast"}),
    ("jobs.0.throughput.v100", {"1": {"1": {}}}),
    ("jobs.0.running", {"pool": "v100"}),
    ("jobs.1.options", []),
    ("jobs.1.options.0.share", 1.5),
    ("jobs.1.options.0.uses.cpu", -1),
    ("cluster", ...),
    ("cluster.pools", []),
    ("cluster.pools.0.nodes", -1),
    ("cluster.pools.0.nodes", [{"gpus": 1}]),
    ("cluster.pools.0.nodes", [{"name": "n", "state": "broken"}]),
    ("cluster.pools.0.bandwidth.node", 0),
    ("cluster.resources.0.kind", "money"),
    ("cluster.topology", []),
    ("tenants.0.policy", "lottery"),
    ("workloads", []),
    ("workloads.LM/20.demand", {"cpu": -1}),
    ("colocation.0.throughput", [1]),
    ("colocation.0.throughput", [1, 2, 3]),
    ("colocation.0.pool", ...),
    ("constraints", [5]),
    ("constraints", [{"limit": 1}]),
    ("performance", {}),
    ("round", 0),
    ("name", ""),
    ("unknown", 1),
]


@pytest.mark.parametrize(("path", "value"), BAD, ids=str)
def test_bad_documents(
    validator: jsonschema.Draft202012Validator,
    two_types: Document,
    edit: Callable[[Document, str, Any], Document],
    refusal: Callable[[object], InvalidInput],
    path: str,
    value: Any,
) -> None:
    edit(two_types, path, value)
    refusal(two_types)
    assert not validator.is_valid(two_types)


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def branches(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    schema = resolve(schema)
    yield schema
    for key in ("anyOf", "oneOf"):
        for inner in schema.get(key, ()):
            yield from branches(inner)


def undescribed(value: Any, schemas: list[dict[str, Any]], path: str = "") -> Iterator[str]:
    """Paths of keys in the value that no branch of the schemas names; free content may hold any."""
    schemas = [branch for schema in schemas for branch in branches(schema)]
    if isinstance(value, list):
        items = [s[key] for s in schemas for key in ("items",) if key in s]
        items += [inner for s in schemas for inner in s.get("prefixItems", ())]
        for row, item in enumerate(value):
            yield from undescribed(item, items, f"{path}[{row}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            named = [s["properties"][key] for s in schemas if key in s.get("properties", ())]
            named += [
                s["additionalProperties"]
                for s in schemas
                if isinstance(s.get("additionalProperties"), dict)
            ]
            free = [
                s
                for s in schemas
                if s.get("type") == "object" and s.get("additionalProperties", True) is True
            ]
            if named:
                yield from undescribed(item, named, f"{path}.{key}")
            elif not free:
                yield f"{path}.{key}"


def test_every_key_is_described(document: Document) -> None:
    assert list(undescribed(document, [SCHEMA])) == []


def test_the_search_for_undescribed_keys_finds_them(two_types: Document) -> None:
    two_types["jobs"][1]["options"][0]["uses"] = {"cpu": 1}
    two_types["jobs"][1]["options"][0]["speed"] = 1
    two_types["cluster"]["pools"][0]["bandwidth"]["spine"] = 1
    found = list(undescribed(two_types, [SCHEMA]))
    assert found == [".cluster.pools[0].bandwidth.spine", ".jobs[1].options[0].speed"]
