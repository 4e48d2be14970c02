"""The allocation heatmap: numbers, labels, sizes, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.libraries import AssignmentProblem
from optsched.report import SolutionFile, allocation_heatmap, heatmap_rows, save_picture

# Private names: what a picture or a page is made of, before it is drawn
from optsched.report.heatmap import MAX_BANDS, MAX_LABELLED
from optsched.solution import Solution

pytestmark = pytest.mark.picture

mpl = pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def large() -> Solution:
    return optsched.solve("@large", "max-min-fairness")


def texts(ax: object) -> str:
    return "\n".join(text.get_text() for text in ax.figure.findobj(mpl.text.Text))  # type: ignore[attr-defined]


def test_a_row_per_job_with_its_fractions(quickstart: Solution) -> None:
    rows = heatmap_rows(quickstart.allocation)
    assert rows.places == ("v100", "p100", "k80")
    assert len(rows.labels) == 12
    assert rows.labels[1] == "bert-base-2 (4)"
    wanted = np.zeros((12, 3))
    names = [job.id for job in quickstart.instance.jobs]
    for record in quickstart.allocation.to_records():
        wanted[names.index(record["job"]), rows.places.index(record["pool"])] += record["fraction"]
    np.testing.assert_allclose(rows.fraction, wanted, atol=1e-12)
    assert not rows.runs[names.index("vit-b16-12"), 2]
    assert rows.runs.sum() == 35


def test_a_pair_counts_for_both_jobs() -> None:
    solution = optsched.solve("@packing", "max-min-fairness")
    rows = heatmap_rows(solution.allocation)
    names = [job.id for job in solution.instance.jobs]
    wanted = np.zeros((24, 2))
    records = solution.allocation.to_records()
    assert any("jobs" in record for record in records)
    for record in records:
        for job in record.get("jobs", [record.get("job")]):
            wanted[names.index(job), rows.places.index(record["pool"])] += record["fraction"]
    np.testing.assert_allclose(rows.fraction, wanted, atol=1e-12)
    assert rows.fraction.sum(axis=1).max() <= 1 + 1e-9


def test_many_equal_jobs_are_drawn_by_class() -> None:
    rates = np.repeat([[4.0, 1.0], [2.0, 1.0], [3.0, 0.0]], 40, axis=0)
    instance = optsched.Instance.from_arrays(pools={"a": 20, "b": 40}, throughput=rates)
    solution = optsched.solve(instance, "max-min-fairness")
    rows = heatmap_rows(solution.allocation)
    assert rows.labels == (
        "j0 (1) and 39 like it",
        "j40 (1) and 39 like it",
        "j80 (1) and 39 like it",
    )
    assert rows.size.tolist() == [40, 40, 40]
    gpus = rows.fraction.T @ rows.size
    np.testing.assert_allclose(gpus, solution.allocation.usage, atol=1e-9)
    assert "mean of the row's jobs" in texts(allocation_heatmap(solution))


def test_many_different_jobs_are_sorted_and_put_in_bands(large: Solution) -> None:
    rows = heatmap_rows(large.allocation)
    assert rows.labels == ()
    assert len(rows.size) == MAX_BANDS
    assert rows.size.sum() == 2000
    time = rows.fraction.T @ rows.size
    table = large.allocation.rows
    by_pool = np.bincount(large.allocation.classes.pool[table.column], table.fraction, minlength=4)
    np.testing.assert_allclose(time, by_pool, atol=1e-6)


def test_many_pools_are_put_in_bands_without_labels() -> None:
    pools, jobs = 1000, np.arange(900)
    rates = np.zeros((len(jobs), pools))
    rates[jobs, jobs] = 1.0
    instance = optsched.Instance.from_arrays(
        pools={f"p{pool}": 1 for pool in range(pools)}, throughput=rates
    )
    solution = optsched.solve(instance)
    rows = heatmap_rows(solution.allocation)
    assert rows.fraction.shape == (MAX_BANDS, MAX_BANDS)
    assert rows.places_in.sum() == pools
    assert (rows.fraction.T @ rows.size).sum() == pytest.approx(900)
    ax = allocation_heatmap(solution)
    assert ax.get_xlabel() == "pools, in the order of the instance"
    assert len(ax.get_xticks()) + len(ax.get_xticks(minor=True)) < 20


def test_a_negligible_fraction_is_no_use_of_a_pool() -> None:
    instance = optsched.Instance.from_arrays(
        pools={"a": 60, "b": 60}, throughput=np.random.default_rng(1).uniform(1, 2, (200, 2))
    )
    rows = heatmap_rows(optsched.solve(instance, "max-throughput", solver="clarabel").allocation)
    used = rows.fraction >= 5e-4
    first_idle = int(np.flatnonzero(~used.any(axis=1))[0])
    assert not used[first_idle:].any()


def test_the_picture_says_what_it_shows(quickstart: Solution) -> None:
    ax = allocation_heatmap(quickstart)
    assert ax.get_title(loc="left") == "quickstart: fraction of time on each pool"
    assert ax.get_xlabel() == "pool (GPUs in use, mean over time)"
    assert ax.get_ylabel() == "job (GPUs)"
    words = texts(ax)
    for part in (
        "max-min-fairness: optimal, objective 0.9714",
        "12 jobs",
        "8 of 8",
        "fraction of time",
        "grey",
    ):
        assert part in words
    assert ax.get_yticklabels()[0].get_text() == "resnet-50-1 (1)"


def test_colours_do_not_depend_on_the_values(quickstart: Solution, large: Solution) -> None:
    first, second = (allocation_heatmap(solution).images[0] for solution in (quickstart, large))
    assert first.get_clim() == second.get_clim()
    assert first.cmap(0.5) == second.cmap(0.5)


def test_jobs_outside_the_program_are_counted() -> None:
    instance = optsched.Instance.from_arrays(pools={"a": 2}, throughput=[[1.0], [0.0], [2.0]])
    assert "2 jobs, 1 not in the program" in texts(
        allocation_heatmap(optsched.solve(instance, "max-throughput"))
    )


def without_pools(*uses: dict[str, float]) -> dict[str, Any]:
    """A job that has an option without a pool for each of some uses of resources."""
    return instance_document(
        {"a": 1},
        [{"id": "x", "options": [{"throughput": 1.0, "uses": each} for each in uses]}],
        resources=[{"name": "slots", "capacity": 1}, {"name": "disks", "capacity": 4}],
    )


def test_options_without_a_pool_have_a_place_of_their_own() -> None:
    document = without_pools({"slots": 2, "disks": 1})
    rows = heatmap_rows(
        optsched.solve(optsched.Instance.from_document(document), "max-throughput").allocation
    )
    assert rows.places == ("no pool",) and not rows.pooled
    np.testing.assert_allclose(rows.fraction, [[0.5]])
    document["jobs"].append({"id": "y", "throughput": {"a": 1.0}, "steps": 1.0})
    rows = heatmap_rows(
        optsched.solve(optsched.Instance.from_document(document), "max-throughput").allocation
    )
    assert rows.places == ("a", "no pool") and rows.pooled
    np.testing.assert_allclose(rows.fraction, [[0.0, 0.5], [1.0, 0.0]])


def test_options_that_use_one_resource_each_stand_under_it(tmp_path: Path) -> None:
    """So an assignment shows the agent of each job."""
    instance = AssignmentProblem(
        np.array([[4.0, 1.0, 9.0], [2.0, 7.0, 3.0]]),
        np.array([[5.0, 6.0, 4.0], [3.0, 4.0, 4.0]]),
        np.array([6.0, 8.0]),
    ).instance("tiny")
    solution = optsched.solve(instance, "gap")
    assert solution.allocation is not None
    rows = heatmap_rows(solution.allocation)
    assert rows.places == ("agent0", "agent1") and rows.labels == ("j0", "j1", "j2")
    assert rows.fraction.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert (rows.used.tolist(), rows.capacity.tolist()) == ([6, 7], [6, 8])
    words = texts(allocation_heatmap(solution))
    assert "fraction of time with each resource" in words and "7 of 8" in words
    solution.write(tmp_path / "tiny.json")
    again = heatmap_rows(SolutionFile.read(instance, tmp_path / "tiny.json"))
    assert again.places == rows.places and again.fraction.tolist() == rows.fraction.tolist()


def test_one_job_is_enough_for_a_picture(tmp_path: Path) -> None:
    instance = optsched.Instance.from_arrays(
        pools={"a": 1}, throughput=[[1.0]], ids=["a job of a very, very long name"]
    )
    ax = allocation_heatmap(optsched.solve(instance, "max-throughput"))
    assert ax.get_yticklabels()[0].get_text() == "a job of a very, very long … (1)"
    save_picture(ax, tmp_path / "one.png")


@pytest.mark.parametrize("formulation", ["max-min-fairness", "max-throughput"])
def test_without_an_allocation_there_is_no_picture(formulation: str) -> None:
    infeasible = optsched.solve("@infeasible", formulation)
    with pytest.raises(
        UsageError, match="the solution is infeasible: there is no allocation to draw"
    ):
        allocation_heatmap(infeasible)


def test_without_jobs_there_is_no_picture() -> None:
    instance = optsched.Instance.from_arrays(pools={"a": 1}, throughput=[[0.0]])
    with pytest.raises(UsageError, match="no job is in the program"):
        allocation_heatmap(optsched.solve(instance, "max-throughput"))


def test_other_files_are_refused(quickstart: Solution, tmp_path: Path) -> None:
    with refuses("found picture.docx, expected a name that ends in .png, .svg or .pdf", UsageError):
        save_picture(allocation_heatmap(quickstart), tmp_path / "picture.docx")
    with refuses("picture.png: found No such file or directory", UsageError):
        save_picture(allocation_heatmap(quickstart), tmp_path / "nowhere" / "picture.png")
    assert list(tmp_path.iterdir()) == []


def test_labels_fit_the_limit() -> None:
    rates = np.random.default_rng(0).uniform(1, 2, (MAX_LABELLED, 2))
    solution = optsched.solve(
        optsched.Instance.from_arrays(pools={"a": 9, "b": 9}, throughput=rates)
    )
    assert len(heatmap_rows(solution.allocation).labels) == MAX_LABELLED
