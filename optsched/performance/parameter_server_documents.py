"""``workloads[*].parameters.parameter_server`` of an instance:
checked documents -> `ParameterServers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from pydantic import model_validator

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import (
    Document,
    Finite,
    Name,
    NonNegative,
    Positive,
    Triple,
    refused,
)
from optsched.instance.reading import join, key, listed, show, validate
from optsched.performance.parameter_server import KEY, LAWS, TERMS, ParameterServers

MOST_PAIRS = 1_000_000
"""Most pairs (workers, servers) of one law; more are taken for an error in the input, and no solver
could handle them.
"""


class AsyncCoefficients(Document):
    """Coefficients of t = (a + b w / p + c w + d p) / w, s."""

    a: NonNegative = 0.0
    b: NonNegative = 0.0
    c: NonNegative = 0.0
    d: NonNegative = 0.0

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if not any(self.model_dump().values()):
            raise refused("only zeros", "at least one coefficient above 0")
        return self


class SyncCoefficients(AsyncCoefficients):
    """Coefficients of t = a B / w + b + c w / p + d w + e p, s."""

    e: NonNegative = 0.0


class ValueDocument(Document):
    """What a job is worth by its duration; exactly one of the two."""

    sigmoid: Triple[Finite] | None = None
    constant: NonNegative | None = None

    @model_validator(mode="after")
    def _one_that_never_grows(self) -> Self:
        if (self.sigmoid is None) == (self.constant is None):
            found = "neither" if self.sigmoid is None else "both"
            raise refused(f"{found} of sigmoid and constant", "exactly one of them")
        for number, parameter in enumerate((self.sigmoid or ())[:2]):
            if parameter < 0:
                expected = "a number of at least 0, as the value must not grow with the duration"
                raise refused(show(parameter), expected, f".sigmoid[{number}]")
        return self


class ParameterServerDocument(Document):
    """What both laws have in common;
    amounts are by resource, per worker, per server, and per job.
    """

    law: Literal["ps-sync", "ps-async"]
    worker: dict[Name, NonNegative]
    server: dict[Name, NonNegative]
    limit: dict[Name, NonNegative]
    value: ValueDocument = ValueDocument(constant=1.0)


class SyncDocument(ParameterServerDocument):
    """Synchronous training: all workers share a batch and wait for each other."""

    coefficients: SyncCoefficients
    batch: Positive = 1.0


class AsyncDocument(ParameterServerDocument):
    """Asynchronous training: every worker goes at its own pace."""

    coefficients: AsyncCoefficients


LawDocument = SyncDocument | AsyncDocument
DOCUMENTS: Mapping[str, type[LawDocument]] = {"ps-sync": SyncDocument, "ps-async": AsyncDocument}


def read_parameter_servers(instance: Instance) -> ParameterServers:
    """The laws of an instance's workloads, checked.

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    capacities = instance.cluster.capacities(instance.now)
    rows = [row for row, workload in enumerate(instance.workloads) if KEY in workload.parameters]
    paths = [
        f"{join('workloads', [instance.workloads[row].name])}.parameters.{KEY}" for row in rows
    ]
    documents = []
    for row, path in zip(rows, paths, strict=True):
        if instance.workloads[row].rates >= 0:
            raise InvalidInput(path, "a law beside a throughput", "one of the two in a workload")
        documents.append(
            _document(instance.workloads[row].parameters[KEY], path, instance, capacities)
        )
    names = list(dict.fromkeys(name for document in documents for name in document.limit))
    laws = ParameterServers(
        workload=np.array(rows, np.int64),
        terms=np.array([_terms(document) for document in documents], np.float64).reshape(
            -1, len(TERMS)
        ),
        names=tuple(names),
        pool_of=np.array([instance.cluster.pool_index.get(name, -1) for name in names], np.int64),
        worker=_matrix([document.worker for document in documents], names),
        server=_matrix([document.server for document in documents], names),
        limit=_matrix([document.limit for document in documents], names),
        capacity=np.array([capacities[name] for name in names], np.float64),
        value=np.array([_value(document.value) for document in documents], np.float64).reshape(
            -1, 3
        ),
        constant=np.array([document.value.sigmoid is None for document in documents], bool),
    )
    _refuse_too_many(laws, paths)
    return laws


def _document(
    given: Any,
    path: str,
    instance: Instance,
    capacities: Mapping[str, float],
) -> LawDocument:
    law = given.get("law") if isinstance(given, Mapping) else None
    model = DOCUMENTS.get(law) if isinstance(law, str) else None
    document = validate(ParameterServerDocument if model is None else model, given, path)
    assert isinstance(document, LawDocument)  # without a known law, validate has raised
    _check_amounts(document, path, instance, capacities)
    return document


def _check_amounts(
    document: ParameterServerDocument,
    path: str,
    instance: Instance,
    capacities: Mapping[str, float],
) -> None:
    """Check that names are capacities, that every used resource is limited, and that GPUs are
    integers of one pool.
    """
    resources = instance.cluster.resources
    consumable = {resource.name for resource in resources if resource.kind == "consumable"}
    pools = set()
    for field in ("worker", "server", "limit"):
        amounts = getattr(document, field)
        for name, amount in amounts.items():
            where = f"{path}.{field}.{key(name)}"
            if name not in capacities:
                raise InvalidInput(where, "an unknown resource", f"one of {listed(capacities)}")
            if name in consumable:
                raise InvalidInput(
                    where, "a consumable resource", "a renewable one (an option's uses can consume)"
                )
            if field == "limit":
                continue
            if name not in document.limit:
                raise InvalidInput(
                    f"{path}.limit.{key(name)}", "nothing", f"a limit, as each {field} uses {name}"
                )
            if name in instance.cluster.pool_index and amount > 0:
                pools.add(name)
                if not float(amount).is_integer():
                    raise InvalidInput(where, show(amount), "a whole number of GPUs")
                if len(pools) > 1:
                    raise InvalidInput(
                        where, f"GPUs of {listed(sorted(pools))}", "GPUs of one pool"
                    )
        if field != "limit" and not any(amounts.values()):
            raise InvalidInput(
                f"{path}.{field}", "no amount above 0", f"something that a {field} uses"
            )


def _terms(document: LawDocument) -> list[float]:
    """Coefficients of the `TERMS`."""
    terms = dict.fromkeys(TERMS, 0.0)
    for name, powers in LAWS[document.law].items():
        terms[powers] = getattr(document.coefficients, name)
    if isinstance(document, SyncDocument):
        terms[LAWS["ps-sync"]["a"]] *= document.batch
    return list(terms.values())


def _value(value: ValueDocument) -> tuple[float, float, float]:
    return value.sigmoid if value.sigmoid is not None else (value.constant or 0.0, 0.0, 0.0)


def _matrix(amounts: list[dict[str, float]], names: list[str]) -> FloatArray:
    return np.array(
        [[given.get(name, 0.0) for name in names] for given in amounts], np.float64
    ).reshape(len(amounts), len(names))


def _refuse_too_many(laws: ParameterServers, paths: list[str]) -> None:
    """Refuse laws with too many pairs."""
    if len(laws) == 0:
        return
    # Check W first: counting pairs loops over all w, which would take forever with a wrong number.
    narrow = laws.most_workers.max() <= MOST_PAIRS
    counts = laws.count_pairs() if narrow else laws.most_workers
    law = int(counts.argmax())
    if counts[law] > MOST_PAIRS:
        found = (
            f"room for {'' if narrow else 'at least '}{counts[law]:,} pairs of workers and servers"
        )
        raise InvalidInput(f"{paths[law]}.limit", found, f"a limit with at most {MOST_PAIRS:,}")
