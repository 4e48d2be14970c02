"""What is compiled from a snapshot of an instance is compiled from the instance, to the last bit.

A scheduler that is recovered from a snapshot computes the same bytes only if this holds, after any revisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import optsched
from optsched.generate import generate
from optsched.instance import (
    Instance,
    instance_bytes,
    jobs_of_documents,
    with_columns,
    with_jobs,
    with_nodes,
)

# Private names: single steps of the compilation are compared with the whole
from optsched.instance.archive import from_npz
from optsched.instance.write import job_documents
from optsched.program import AllocationProgram, LinearArrays

pytestmark = pytest.mark.property

SHIPPED = ("quickstart", "packing", "leases", "topology", "smd", "unrelated", "knapsack")
GENERATED: dict[str, dict[str, Any]] = {
    "distinct": {"jobs": 60},
    "repeated": {"jobs": 80, "rows": "repeated", "kinds": 12},
    "elastic": {"jobs": 50, "elastic": 0.5},
    "pairs of jobs": {"jobs": 40, "colocation": 1.0},
    "pairs of kinds": {"jobs": 60, "colocation": 0.5, "rows": "repeated", "kinds": 12},
    "mixed nodes": {"jobs": 60, "topology": "mixed-nodes", "unavailable": 0.2},
}


FORMULATIONS = ("max-min-fairness", "max-throughput", "lexicographic-max-min")


def made(case: str) -> Instance:
    return (
        generate("cluster", seed=3, **GENERATED[case]).instance
        if case in GENERATED
        else optsched.load(f"@{case}")
    )


def revised(instance: Instance, seed: int) -> Instance:
    """Some rounds later: jobs left, some of them came back, others moved on, a node went down."""
    random = np.random.default_rng(seed)
    for number in range(3):
        count = len(instance.jobs)
        stay = random.permutation(count)[: -(-3 * count // 4)]
        left = np.setdiff1d(np.arange(count), stay)
        rest = with_jobs(instance, stay)
        back = job_documents(instance, left[::2].tolist())
        for job in back:
            job["after"] = [name for name in job.get("after", ()) if name in rest.jobs]
        instance = with_jobs(rest, np.arange(len(stay)), jobs_of_documents(rest, back))
        table = instance.jobs_table
        instance = with_columns(
            instance, now=instance.now + 10.0, steps_done=table.steps_done + 0.1 * table.steps_left
        )
        pool = instance.cluster.pools[number % len(instance.cluster.pools)]
        if len(pool.node_gpus) > 1:
            instance = with_nodes(instance, {pool.node_name(0): ("down", "up")[number % 2]})
    return instance


def compiled(instance: Instance) -> dict[str, Any]:
    """Kinds, columns, configurations, matrices and the arrays of programs."""
    candidates = optsched.compile(instance)
    parts: dict[str, Any] = {
        name: getattr(candidates, name)
        for name in (
            "kinds",
            "columns",
            "configuration",
            "configurations",
            "resources",
            "usage",
            "dropped",
        )
    }
    for name in ("multiple-choice",) if instance.name.startswith("knapsack") else FORMULATIONS:
        formulation = optsched.api.make_formulation(name, {}, [])
        classes = formulation.classes(candidates)
        parts |= {
            f"{name}: {part}": getattr(classes, part)
            for part in ("of_job", "throughput", "member", "usage")
        }
        program = formulation.program(classes)
        parts[name] = (
            program.to_linear() if isinstance(program, AllocationProgram) else program
        ).arrays
        assert isinstance(parts[name], LinearArrays)
    return parts


def same_bits(one: Any, other: Any, path: str) -> None:
    assert type(one) is type(other), path
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), path
    elif sp.issparse(one):
        for part in ("data", "indices", "indptr"):
            same_bits(getattr(one, part), getattr(other, part), f"{path}.{part}")
    elif is_dataclass(one):
        for field in fields(one):
            same_bits(getattr(one, field.name), getattr(other, field.name), f"{path}.{field.name}")
    elif isinstance(one, Mapping):
        assert list(one) == list(other), path
        for key in one:
            same_bits(one[key], other[key], f"{path}[{key}]")
    elif isinstance(one, tuple | list):
        assert len(one) == len(other), path
        for row, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            same_bits(mine, theirs, f"{path}[{row}]")
    else:
        assert one == other, path


@pytest.mark.parametrize("case", [*SHIPPED, *GENERATED])
def test_a_snapshot_compiles_to_the_same_bits(case: str) -> None:
    instance = made(case)
    same_bits(compiled(from_npz(instance_bytes(instance, "npz"))), compiled(instance), case)
    later = revised(instance, 0)
    same_bits(compiled(from_npz(instance_bytes(later, "npz"))), compiled(later), case)


@pytest.mark.parametrize("case", [*SHIPPED, *GENERATED])
def test_rounds_after_a_snapshot_are_the_rounds_without_it(case: str) -> None:
    """Recovered after some rounds, then some more of them."""
    without = revised(revised(made(case), 0), 1)
    after = revised(from_npz(instance_bytes(revised(made(case), 0), "npz")), 1)
    assert after.sha256 == without.sha256
    assert instance_bytes(after, "npz") == instance_bytes(without, "npz")
    same_bits(compiled(after), compiled(without), case)


@pytest.mark.parametrize("case", [*SHIPPED, *GENERATED])
def test_a_revised_instance_compiles_to_the_bits_of_its_document(case: str) -> None:
    later = revised(made(case), 0)
    again = Instance.from_document(later.to_document())
    assert again.sha256 == later.sha256
    same_bits(compiled(again), compiled(later), case)


@pytest.mark.parametrize("case", ["quickstart", "packing", "distinct", "elastic", "pairs of kinds"])
def test_a_revised_instance_has_the_optimum_of_its_document(case: str) -> None:
    later = revised(made(case), 0)
    again = Instance.from_document(later.to_document())
    mine, theirs = (optsched.solve(one, "max-min-fairness") for one in (later, again))
    assert mine.status == "optimal"
    assert mine.objective == theirs.objective
