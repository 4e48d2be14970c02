"""Requests and limits of shares: what a job may use of its GPUs while others leave them idle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_placements import Document, best_total, small_instance
from refusals import refuses

import optsched
from optsched.instance import instance_bytes


def shares(gpus: int, share: float, limit: float | None = None) -> dict[str, Any]:
    option = {"pool": "v", "gpus": gpus, "nodes": 1, "share": share, "throughput": 1.0}
    return option if limit is None else option | {"limit": limit}


def cluster_of(*options: dict[str, Any], gpus: int = 2) -> Document:
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": [{"name": "n", "gpus": gpus}]}]},
        "jobs": [{"id": f"j{number}", "options": [way]} for number, way in enumerate(options)],
    }


def placed(document: Document) -> optsched.Solution:
    return optsched.solve(document, "max-throughput", integral=True, constraints=["placeable"])


@pytest.mark.parametrize(
    ("ways", "expected"),
    [
        # 0.3 are left of a GPU: the first job rises to the level of the second one, and both share the rest.
        ([shares(1, 0.3, 1.0), shares(1, 0.4, 1.0)], [0.5, 0.5]),
        ([shares(1, 0.3, 0.4), shares(1, 0.4, 1.0)], [0.4, 0.6]),
        ([shares(1, 0.2, 1.0), shares(1, 0.7)], [0.3, 0.7]),
        ([shares(1, 0.2, 0.25), shares(1, 0.3, 0.5)], [0.25, 0.5]),
    ],
)
def test_what_is_left_goes_to_those_who_have_least(
    ways: list[dict[str, Any]], expected: list[float]
) -> None:
    solution = placed(cluster_of(*ways, gpus=1))
    assert solution.placement is not None and solution.placement.granted is not None
    assert solution.placement.granted == pytest.approx(expected)
    assert [row["granted"] for row in solution.placement.to_records()] == pytest.approx(expected)
    assert optsched.verify(solution).ok


def test_a_job_has_the_same_of_all_of_its_gpus() -> None:
    """The GPU that is fuller limits the job on both, and what it leaves of the other one goes to its neighbour."""
    document = cluster_of(shares(2, 0.2, 1.0), shares(1, 0.8), shares(1, 0.3, 1.0))
    solution = placed(document)
    assert solution.placement is not None and solution.placement.granted is not None
    assert solution.placement.granted == pytest.approx([0.2, 0.8, 0.8])


def test_without_limits_nothing_is_said() -> None:
    solution = placed(cluster_of(shares(1, 0.3), shares(1, 0.4, 0.4)))
    assert solution.placement is not None and solution.placement.granted is None
    assert not any("granted" in row for row in solution.placement.to_records())


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", ["shares", "spread"])
def test_requests_are_kept_and_no_limit_is_passed(kind: str, seed: int) -> None:
    """The program promises what it does without limits. No job could have more without one having less
    that has no more than it: this is max-min fairness.
    """
    document, random = small_instance(kind, seed), np.random.default_rng(seed)
    for job in document["jobs"]:
        for way in job.get("options", ()):
            way["limit"] = float(random.choice([way["share"], (1 + way["share"]) / 2, 1.0]))
    solution = placed(document)
    assert solution.objective == pytest.approx(best_total(document))
    assert optsched.verify(solution).ok
    placement, allocation = solution.placement, solution.allocation
    if placement is None or placement.granted is None:
        return
    assert allocation is not None
    C, options = allocation.classes, solution.instance.options
    column = allocation.rows.column[placement.row]
    option = C.candidates.columns.option[C.kind_column[column]]
    low = C.configurations.share[C.configuration[column]]
    high = np.where(option < 0, low, options.limit[option])
    granted = placement.granted
    assert (low <= granted + 1e-9).all() and (granted <= high + 1e-9).all()
    on_gpu: dict[str, list[int]] = {}
    for row, gpus in enumerate(placement.gpus):
        for gpu in gpus:
            on_gpu.setdefault(gpu, []).append(row)
    assert all(granted[rows].sum() <= 1 + 1e-9 for rows in on_gpu.values())
    for row in np.flatnonzero(granted < high - 1e-9).tolist():
        held_back = [
            granted[rows].sum() >= 1 - 1e-9
            and all(granted[other] <= max(granted[row], low[other]) + 1e-9 for other in rows)
            for gpu, rows in on_gpu.items()
            if gpu in placement.gpus[row]
        ]
        assert any(held_back)


def test_verify_finds_another_share() -> None:
    solution = placed(cluster_of(shares(1, 0.3, 1.0), shares(1, 0.4, 1.0), gpus=1))
    document = solution.to_document()
    document["placement"][0]["granted"] = 0.6
    fields = {finding.field for finding in optsched.verify(solution.instance, document).findings}
    assert fields == {"placement[0].granted"}


def test_limits_that_say_nothing_sensible_are_refused() -> None:
    where = "jobs[0].options[0].limit"
    with refuses(f"{where}: found 0.2, expected at least the option's share of 0.5"):
        optsched.load(cluster_of(shares(1, 0.5, 0.2)))
    with refuses(f"{where}: found 1.5, expected ..."):
        optsched.load(cluster_of(shares(1, 0.5, 1.5)))
    alone = cluster_of({"throughput": 1.0, "limit": 1.0})
    with refuses(f"{where}: found 1 without GPUs, expected the GPUs that the job may use"):
        optsched.load(alone)
    sliced = cluster_of(shares(1, 0.5, 1.0) | {"attributes": {"mig": "2g.10gb"}})
    with refuses(f"{where}: found 1 of a slice, expected no limit: ..."):
        optsched.load(sliced)


def test_limits_are_kept_in_files_and_change_the_hash_only_where_they_say_more(
    tmp_path: Path,
) -> None:
    plain, same, more = (
        optsched.load(cluster_of(shares(1, 0.3, limit))) for limit in (None, 0.3, 0.6)
    )
    assert plain.sha256 == same.sha256 != more.sha256
    for kind in ("json", "yaml", "npz"):
        path = tmp_path / f"instance.{kind}"
        path.write_bytes(instance_bytes(more, kind))
        again = optsched.load(path)
        assert again.sha256 == more.sha256
        assert again.options.limit.tolist() == [0.6]


def beside_a_holder() -> optsched.Solution:
    """A job that is not in the solution keeps 0.6 of the only GPU; the other one gets 0.3 of it."""
    holder = shares(1, 0.6) | {"uses": {"licence": 1}}
    other = shares(1, 0.3, 1.0) | {"uses": {"licence": 1}, "throughput": 5.0}
    document = cluster_of(other, holder, gpus=1)
    document["cluster"]["resources"] = [{"name": "licence", "capacity": 1}]
    document["jobs"][1] |= {"preemptible": False, "running": {"pool": "v", "gpus": ["n/0"]}}
    return optsched.place(optsched.solve(document, "max-throughput", integral=True))


def test_shares_of_jobs_outside_the_rows_are_not_granted_to_others() -> None:
    solution = beside_a_holder()
    placement = solution.placement
    assert placement is not None and placement.granted is not None
    assert [item[0] for item in placement.contradicted] == [1]
    assert placement.granted == pytest.approx([0.4])
    assert optsched.verify(solution).ok
    stated = solution.to_document()
    stated["placement"][0]["granted"] = 1.0
    refused = optsched.verify(solution.instance, stated).findings
    assert [finding.field for finding in refused] == ["placement[0].granted"]
