"""`compile` against a slow reference, on random instances with every feature of the format."""

from __future__ import annotations

from collections import Counter

import pytest
from compile_cases import (
    ConstantModel,
    columns_of,
    compiled,
    constant_rate,
    dropped_of,
    random_document,
)
from compile_reference import Reference

from optsched.candidates import Absence
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.performance import TableModel

pytestmark = pytest.mark.property

SEEDS = range(250)


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_equal_the_reference(seed: int) -> None:
    document = random_document(seed)
    expected, candidates = Reference(document), compiled(document)
    assert Counter(columns_of(candidates)) == Counter(expected.columns)
    assert set(dropped_of(candidates)) == set(expected.dropped)
    names = candidates.instance.jobs_table.names
    absent = {
        names[job]: Absence(reason) for job, reason in enumerate(candidates.absence) if reason
    }
    assert absent == expected.absent
    assert {names[job] for job, _ in candidates.unplaced()} == set(expected.absent)
    resources = candidates.resources
    found = dict(
        zip(resources.names, zip(resources.capacity, resources.renewable, strict=True), strict=True)
    )
    assert found == expected.capacities()
    assert list(found) == list(expected.capacities())


@pytest.mark.parametrize("seed", SEEDS[:90])
def test_columns_with_a_second_model_equal_the_reference(seed: int) -> None:
    document = random_document(seed)
    expected, candidates = Reference(document, constant_rate), compiled(document, ConstantModel())
    assert Counter(columns_of(candidates)) == Counter(expected.columns)
    assert set(dropped_of(candidates)) == set(expected.dropped)


def test_the_table_model_refuses_the_jobs_that_the_reference_refuses() -> None:
    for seed in SEEDS:
        document = random_document(seed)
        instance, refused = Instance.from_document(document), Reference(document).refused()
        if not refused:
            TableModel.refuse_plain_numbers(instance)
            continue
        with pytest.raises(InvalidInput) as error:
            TableModel.refuse_plain_numbers(instance)
        assert f'which job "{refused[0]}" would need' in error.value.found


def test_the_random_documents_have_every_feature() -> None:
    """Guards the tests above against becoming empty."""
    reasons: Counter[str] = Counter()
    for seed in SEEDS:
        document = random_document(seed)
        found = Reference(document)
        reasons.update(
            f"drop {dropped.reason.name} {len(dropped.jobs)}" for dropped in found.dropped
        )
        reasons.update(f"absent {reason.name}" for reason in found.absent.values())
        reasons.update(f"{len(column.jobs)} jobs, {column.nodes} nodes" for column in found.columns)
        reasons.update("no pool" for column in found.columns if column.pool is None)
        reasons.update("share" for column in found.columns if column.share < 1)
        reasons.update(
            f"use {name.rpartition('.')[2]}" for column in found.columns for name, _ in column.usage
        )
        reasons["refused"] += bool(found.refused())
    for feature in (
        "drop ZERO_RATE 1", "drop NO_RATE 1", "drop OUT_OF_MEMORY 1", "drop TOO_MANY_GPUS 1", "drop TOO_MANY_NODES 1",
        "drop ZERO_RATE 2", "drop OUT_OF_MEMORY 2", "drop TOO_MANY_GPUS 2",
        "drop NO_ROOM 1", "drop NO_ROOM 2", "drop OVER_CAPACITY 1",
        "absent NO_STEP_LEFT", "absent NO_COLUMN",
        "absent ARRIVES_LATER", "1 jobs, 1 nodes", "1 jobs, 2 nodes", "1 jobs, 3 nodes", "2 jobs, 1 nodes",
        "2 jobs, 2 nodes", "no pool", "share", "use cpu", "use memory", "use r0", "refused",
    ):  # fmt: skip
        assert reasons[feature] >= 5, feature
    assert reasons["drop OVER_CAPACITY 2"]  # rare: neither of the two needs too much alone
