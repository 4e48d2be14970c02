"""Rounds on nodes: the share of an allocation that whole placements realise, against all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from all_placements import KINDS, Document, Way, can_run, small_instance, ways_of
from scipy.optimize import linprog

import optsched

# Private: from how many contents on they are made on demand
from optsched.program.space import node_bins

pytestmark = pytest.mark.oracle


def largest_share(document: Document, solution: optsched.Solution) -> float:
    """The largest share of an allocation that placements run in turn, by trying all sets of rows."""
    assert solution.allocation is not None
    rows, C = solution.allocation.rows, solution.allocation.classes
    some = np.flatnonzero(rows.fraction > 0).tolist()
    ways: list[Way] = []
    for row in some:
        job, column = document["jobs"][rows.job[row]], rows.column[row]
        alike = (C.gpus[column], pytest.approx(C.rate_a[column]))
        ways.append(next(way for way in ways_of(document, job) if (way.gpus, way.rate) == alike))
    sets = [()]
    patterns: list[tuple[int, ...]] = []
    while sets:
        grown = []
        for chosen in sets:
            for row in range(chosen[-1] + 1 if chosen else 0, len(some)):
                more = (*chosen, row)
                jobs = {int(rows.job[some[one]]) for one in more}
                if len(jobs) == len(more) and can_run(document, [ways[one] for one in more]):
                    grown.append(more)
        patterns += grown
        sets = grown
    covers = np.array([[row in pattern for pattern in patterns] for row in range(len(some))], float)
    if not len(some):
        return 1.0
    found = linprog(np.ones(len(patterns)), A_ub=-covers, b_ub=-rows.fraction[some])
    assert found.success
    return min(1.0, 1.0 / float(found.fun))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS)
def test_the_share_is_that_of_the_best_placements(kind: str, seed: int) -> None:
    check_share(kind, seed)


def check_share(kind: str, seed: int) -> None:
    document = small_instance(kind, seed)
    solution = optsched.solve(
        optsched.load(document), "max-min-fairness", constraints=["placeable"]
    )
    if solution.allocation is None:
        return
    rounds = optsched.realise(solution, "patterns").rounds
    assert rounds is not None and rounds.finished
    assert rounds.scale == pytest.approx(largest_share(document, solution), rel=1e-6)
    assert rounds.bound == pytest.approx(rounds.scale, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_contents_that_are_priced_realise_a_share_within_its_bound(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    document = small_instance(kind, seed)
    solution = optsched.solve(
        optsched.load(document), "max-min-fairness", constraints=["placeable"]
    )
    if solution.allocation is None:
        return
    rounds = optsched.realise(solution, "patterns").rounds
    assert rounds is not None
    best = largest_share(document, solution)
    assert 0.9 * best <= rounds.scale <= best * (1 + 1e-6)
    assert rounds.bound >= best * (1 - 1e-6)


def test_many_shares_take_turns_on_a_node() -> None:
    """Shares with CPUs of their own, which a node can hold in too many ways to write down."""
    random = np.random.default_rng(1)
    jobs = []
    for number in range(16):
        share = float(random.choice([0.11, 0.23, 0.32, 0.47, 0.59, 0.81]))
        option = {"pool": "v", "gpus": 1, "nodes": 1, "share": share, "throughput": share}
        uses = {"cpu": float(random.integers(1, 14))}
        jobs.append({"id": f"j{number}", "options": [option | {"uses": uses}]})
    nodes = [{"name": "n0", "gpus": 4, "cpus": 30.0}]
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": nodes}]},
        "jobs": jobs,
    }
    solution = optsched.solve(document, "max-min-fairness", constraints=["placeable"])
    cut = optsched.realise(solution)
    assert cut.rounds is not None
    assert 0.9 * cut.rounds.bound <= cut.rounds.scale <= cut.rounds.bound <= 1.0
    assert optsched.verify(cut, resolve=True).ok
    assert not optsched.place(cut).placement.refused


def two_nodes(**more: Any) -> Document:
    """Two gangs of 3 GPUs and one of 2 on two nodes of 4: all at once only in sum."""
    gangs = {"a": 3, "b": 3, "c": 2}
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": 2, "gpus_per_node": 4}]},
        "jobs": [
            {"id": name, "gpus": gpus, "throughput": {"v": {str(gpus): 1.0 * gpus}}}
            for name, gpus in gangs.items()
        ],
    } | more


def test_shares_of_one_job_are_on_different_gpus() -> None:
    """Two jobs with shares of GPUs of two nodes each need four of three GPUs: they take turns."""
    options = [
        {"pool": "v", "gpus": 2, "nodes": 2, "share": share, "throughput": 1.0}
        for share in (0.6, 0.5)
    ]
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": [{"name": n, "gpus": 1} for n in "abc"]}]},
        "jobs": [{"id": f"j{row}", "options": [option]} for row, option in enumerate(options)],
    }
    solution = optsched.solve(document, "max-min-fairness", constraints=["placeable"])
    rounds = optsched.realise(solution).rounds
    assert rounds is not None
    assert rounds.runs.sum(axis=1).max() == 1


def test_pools_promise_what_nodes_do_not_realise() -> None:
    everything = optsched.solve(two_nodes(), "max-throughput")
    assert everything.objective == 8
    assert optsched.realise(everything).rounds.scale == 1
    kept = optsched.solve(two_nodes(), "max-min-fairness", constraints=["placeable"])
    rounds = optsched.realise(kept).rounds
    # The program of fractions promises more than placements do: two of three at a time.
    assert rounds.scale < 1
    assert (rounds.scale * kept.allocation.rows.fraction).sum() == pytest.approx(2)
    assert np.asarray(rounds.runs.sum(axis=1)).max() == 2


def test_slices_run_beside_a_share_that_stays() -> None:
    """A job that stays has half of the only GPU: one with the other half runs all the time."""
    option = [{"pool": "v", "gpus": 1, "nodes": 1, "share": 0.5, "throughput": 1.0}]
    jobs = [{"id": name, "options": option} for name in "ab"]
    jobs[0] |= {"preemptible": False, "running": {"pool": "v", "gpus": ["n0/0"]}}
    cluster = {"pools": [{"name": "v", "nodes": [{"name": "n0", "gpus": 1}]}]}
    constraints = ["placeable", "uninterrupted"]
    solution = optsched.solve(
        two_nodes(cluster=cluster, jobs=jobs), "max-min-fairness", constraints=constraints
    )
    assert solution.objective == pytest.approx(1.0)
    made = optsched.realise(solution)
    assert made.rounds is not None and made.rounds.scale == pytest.approx(1.0)
    assert optsched.verify(made, resolve=True).ok


def test_racks_are_realised_as_promised() -> None:
    nodes = [f"v-{node}" for node in range(6)]
    racks = {"rack": {"r0": nodes[:3], "r1": nodes[3:]}}
    cluster = {"pools": [{"name": "v", "nodes": 6, "gpus_per_node": 4}], "levels": racks}
    rates = {"8": {"rack": 15.85, "cluster": 2.1}}
    jobs = [{"id": name, "gpus": 8, "throughput": {"v": rates}} for name in "abc"]
    solution = optsched.solve(
        two_nodes(cluster=cluster, jobs=jobs), "max-min-fairness", constraints=["placeable"]
    )
    rounds = optsched.realise(solution).rounds
    assert rounds.scale == pytest.approx(1.0)
    placed = optsched.place(optsched.realise(solution)).placement
    assert not placed.refused


def test_verify_refuses_a_slice_whose_rows_find_no_nodes() -> None:
    """All three gangs at once are within the 8 GPUs, but not on two nodes of 4."""
    instance = optsched.load(two_nodes())
    solution = optsched.solve(instance, "max-min-fairness", constraints=["placeable"])
    document = optsched.realise(solution).to_document()
    assert optsched.verify(instance, document, resolve=True).ok
    made = document["rounds"]["slices"]
    time_of = [sum(part["duration"] for part in made if row in part["run"]) for row in range(3)]
    together = {"duration": time_of[0], "run": [0, 1, 2]}
    alone = {"duration": time_of[2] - time_of[0], "run": [2]}
    document["rounds"]["slices"] = [together, alone]
    findings = optsched.verify(instance, document, resolve=True).findings
    assert [finding.field for finding in findings] == ["rounds.slices[0].run"]


@pytest.mark.parametrize("seed", range(4))
def test_slices_of_gangs_that_share_gpus_are_known_to_fit(seed: int) -> None:
    """`verify` packs their shares with GPUs that differ, gang by gang."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, 3).tolist()
    options = []
    for _ in range(8):
        gpus, share = int(random.integers(1, 5)), float(random.choice([0.25, 0.3, 0.4, 0.5, 0.6]))
        gpus = min(gpus, sum(sizes))
        where = {"pool": "v", "gpus": gpus, "nodes": min(gpus, 3), "share": share}
        options.append(where | {"throughput": 1.0})
    nodes = [{"name": f"n{row}", "gpus": size} for row, size in enumerate(sizes)]
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": nodes}]},
        "jobs": [{"id": f"j{row}", "options": [option]} for row, option in enumerate(options)],
    }
    solution = optsched.solve(document, "max-min-fairness", constraints=["placeable"])
    assert optsched.verify(optsched.realise(solution)).ok
