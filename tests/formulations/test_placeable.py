"""The constraint `placeable`: whole jobs get what the best placement gives, and are placed so."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from all_placements import (
    KINDS,
    Document,
    best_total,
    flaws_of,
    small_instance,
    staying_instance,
)

import optsched
from optsched.program import LinearProgram, Space
from optsched.program.space import best_fit
from optsched.solution import certify_point

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_is_the_best_of_all_placements_and_is_placed(kind: str, seed: int) -> None:
    check_against_all_placements(kind, seed)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("kind", KINDS)
def test_jobs_that_stay_leave_the_rest_of_their_gpus(kind: str, seed: int) -> None:
    """Shares and slices of others run beside them on the same GPUs, in programs as in placements."""
    document = staying_instance(kind, seed)
    if document is not None:
        check_document(document)


@pytest.mark.parametrize("state", ["up", "drain", "reserved"])
@pytest.mark.parametrize("integral", [False, True])
def test_a_job_that_stays_is_promised_nothing_elsewhere(integral: bool, state: str) -> None:
    """It would be ten times as fast on the other pool, and stays on a node that takes no work."""
    pools = [
        {
            "name": "a",
            "nodes": [{"name": "a-0", "gpus": 4, "state": state}, {"name": "a-1", "gpus": 4}],
        },
        {"name": "b", "nodes": 1, "gpus_per_node": 4},
    ]
    rates = {"a": {"2": 3.0}, "b": {"2": 2.0, "4": 30.0}}
    held = {"running": {"pool": "a", "gpus": ["a-0/0", "a-0/1"]}, "preemptible": False}
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": pools},
        "jobs": [
            {"id": "stays", "gpus": {"min": 2, "max": 4}, "throughput": rates, **held},
            {"id": "other", "gpus": 4, "throughput": {"b": 9.0}},
        ],
    }
    solution = optsched.solve(
        document, "max-throughput", integral=integral, constraints=["placeable"]
    )
    assert solution.objective == pytest.approx(12.0)
    if integral:
        assert solution.placement is not None and not solution.placement.refused
        assert ("a-0/0", "a-0/1") in solution.placement.gpus
        assert optsched.verify(solution).ok


def test_nobody_joins_a_job_on_a_node_that_drains() -> None:
    nodes = [{"name": "old", "gpus": 1, "state": "drain"}, {"name": "new", "gpus": 1}]
    held = {"running": {"pool": "p", "gpus": ["old/0"]}, "preemptible": False}
    pair = {"jobs": ["stays", "other"], "pool": "p", "gpus": 1, "throughput": [9.0, 9.0]}
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": nodes}]},
        "jobs": [
            {"id": "stays", "throughput": {"p": 1.0}, **held},
            {"id": "other", "throughput": {"p": 2.0}},
        ],
        "colocation": [pair],
    }
    constraints = ["placeable", "uninterrupted"]
    solution = optsched.solve(document, "max-throughput", integral=True, constraints=constraints)
    assert solution.placement is not None
    assert solution.objective == pytest.approx(3.0)
    assert solution.placement.gpus == (("old/0",), ("new/0",))


def test_a_job_that_stays_where_no_column_continues_it_is_promised_nothing_elsewhere() -> None:
    pools = [{"name": "a", "nodes": [{"name": "n", "gpus": 1, "state": "drain"}]}]
    pools.append({"name": "b", "nodes": 1, "gpus_per_node": 1})
    held = {"running": {"pool": "a", "gpus": ["n/0"]}, "preemptible": False}
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": pools},
        "jobs": [
            {"id": "stays", "throughput": {"a": 1.0, "b": 5.0}, **held},
            {"id": "other", "throughput": {"b": 2.0}},
        ],
    }
    solution = optsched.solve(document, "max-throughput", integral=True, constraints=["placeable"])
    assert solution.objective == pytest.approx(2.0)
    assert solution.placement is not None
    assert solution.placement.gpus == (("b-0/0",),) and not solution.placement.refused


@pytest.mark.parametrize("integral", [False, True])
@pytest.mark.parametrize("constraints", [[], ["placeable"], ["placeable", "uninterrupted"]])
def test_shares_that_stay_on_a_node_that_drains_need_none_of_the_gpus_that_take_work(
    integral: bool, constraints: list[str]
) -> None:
    nodes = [{"name": "old", "gpus": 1, "state": "drain"}, {"name": "new", "gpus": 1}]
    held = {"running": {"pool": "p", "gpus": ["old/0"]}, "preemptible": False}
    way = {"pool": "p", "gpus": 1, "share": 0.6}
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": nodes}]},
        "jobs": [
            {"id": "stays", "options": [way | {"throughput": 1.0}], **held},
            {"id": "other", "options": [way | {"throughput": 2.0}]},
        ],
    }
    solution = optsched.solve(
        document, "max-throughput", integral=integral, constraints=constraints
    )
    assert solution.objective == pytest.approx(3.0) and solution.packed is None
    assert optsched.verify(solution).ok


@pytest.mark.parametrize("integral", [False, True])
@pytest.mark.parametrize(
    ("constraints", "expected"), [([], 6.0), (["uninterrupted"], 4.1), (["placeable"], 4.1)]
)
def test_nobody_else_is_promised_gpus_that_stay_on_a_node_that_drains(
    integral: bool, constraints: list[str], expected: float
) -> None:
    """A job that holds a GPU there and one elsewhere leaves to others two of the three that take
    work, and all of them where a program stops it.
    """
    nodes = [
        {"name": "old", "gpus": 2, "cpus": 8, "state": "drain"},
        {"name": "new", "gpus": 2, "cpus": 4},
        {"name": "small", "gpus": 1, "cpus": 2},
    ]
    held = {"running": {"pool": "p", "gpus": ["old/0", "new/0"]}, "preemptible": False}
    wide = {"pool": "p", "gpus": 2, "nodes": 2, "throughput": 0.1, "uses": {"cpu": 4}}
    one = {"pool": "p", "gpus": 1, "throughput": 2.0, "uses": {"cpu": 2}}
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": nodes}]},
        "jobs": [
            {"id": "stays", "options": [wide], **held},
            *({"id": f"j{number}", "options": [one]} for number in range(4)),
        ],
    }
    solution = optsched.solve(
        document, "max-throughput", integral=integral, constraints=constraints
    )
    assert solution.objective == pytest.approx(expected)


def test_the_program_with_its_space_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    add_to = Space.add_to
    monkeypatch.setattr(Space, "add_to", lambda *given: (built.append(1), add_to(*given)))
    document = small_instance(KINDS[0], 0)
    optsched.solve(document, "max-throughput", integral=True, constraints=["placeable"])
    assert len(built) == 1


def test_a_share_that_stays_leaves_other_shares_contents_of_gpus() -> None:
    """Combinations of seven shares on eight GPUs are too many to write down, those on one GPU are not."""
    shares = [0.1, 0.15, 0.2, 0.3, 0.35, 0.45, 0.5]
    way = {"pool": "v", "gpus": 1, "throughput": 1.0}
    jobs = [{"id": f"j{job}", "options": [way | {"share": shares[job % 7]}]} for job in range(28)]
    jobs[0] |= {"preemptible": False, "running": {"pool": "v", "gpus": ["n0/0"]}}
    nodes = [{"name": f"n{node}", "gpus": 8} for node in range(2)]
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": nodes}]},
        "jobs": jobs,
    }
    constraints = ["placeable", "uninterrupted"]
    problem = optsched.compile(optsched.load(document)).per_job()
    space = Space.of(problem.classes(frozenset()))
    assert space.complete and len(space.contents.counts) < 500
    solution = optsched.solve(document, "max-throughput", integral=True, constraints=constraints)
    assert solution.objective == pytest.approx(28.0)
    assert optsched.verify(solution, resolve=True).ok


def check_against_all_placements(kind: str, seed: int) -> None:
    check_document(small_instance(kind, seed))


def check_document(document: Document) -> None:
    instance = optsched.load(document)
    constraints = ["placeable"]
    solution = optsched.solve(
        instance, "max-throughput", integral=True, constraints=constraints, gap=0.0
    )
    expected = best_total(document)
    assert solution.objective == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert solution.allocation is not None
    if expected == 0:
        return
    relaxed = optsched.solve(instance, "max-throughput", constraints=constraints)
    assert relaxed.bound is not None
    assert relaxed.bound >= expected * (1 - 1e-9)
    # The placement delivers what is promised, as the independent checker says.
    assert flaws_of(solution, document) == []
    assert solution.placement is not None
    rows, where = solution.allocation.rows, solution.placement.row
    assert sorted(where.tolist()) == np.flatnonzero(rows.fraction > 0).tolist()
    assert rows.rate[where].sum() == pytest.approx(expected, rel=1e-12)


def apart_of(document: Document) -> list[np.ndarray]:
    """Sets of jobs that are kept apart, as masks of the jobs."""
    sets = [one["jobs"] for one in document.get("constraints", ())]
    return [np.array([job["id"] in mine for job in document["jobs"]]) for mine in sets]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", KINDS)
def test_best_fit_is_a_placement(kind: str, seed: int) -> None:
    """The point at which the program starts keeps all of its rows."""
    document = small_instance(kind, seed)
    C = optsched.compile(optsched.load(document)).per_job().classes(frozenset())
    space = Space.of(C, apart_of(document))
    worth = np.asarray(C.throughput.sum(axis=0)).ravel()
    A, upper = sp.vstack([C.member, C.usage]).tocsr(), np.append(C.count, C.capacity)
    x, _, seats = best_fit(space, worth, A, upper)
    lp = LinearProgram()
    columns = lp.variables(C.columns, name="x", implied=(0.0, C.limit), integer=True)
    lp.constrain(A @ columns <= upper, name="others")
    space.add_to(lp, columns, whole=True)
    lp.maximise(worth[np.newaxis, :] @ columns)
    arrays = lp.arrays
    point = np.concatenate([x, seats])
    assert certify_point(arrays, point, arrays.objective(point), "none").ok
    best = best_total(document)
    assert 0 < worth @ x <= best * (1 + 1e-12) if best else not x.any()


def test_a_previous_answer_is_a_start() -> None:
    document = small_instance("gangs", 15)
    instance, constraints = optsched.load(document), ["placeable"]
    first = optsched.solve(instance, "max-throughput", integral=True, constraints=constraints)
    C = first.candidates.classes(frozenset())
    space = Space.of(C)
    worth = np.asarray(C.throughput.sum(axis=0)).ravel()
    A, upper = sp.vstack([C.member, C.usage]).tocsr(), np.append(C.count, C.capacity)
    alone, _, _ = best_fit(space, worth, A, upper)
    again, _, _ = best_fit(space, worth, A, upper, first.allocation.x)
    assert worth @ alone < worth @ again
    assert worth @ again == pytest.approx(first.objective)
    second = optsched.solve(
        instance, "max-throughput", integral=True, constraints=constraints, start=first
    )
    assert second.objective == pytest.approx(first.objective)


def on_shares(*shares: float) -> Document:
    """Jobs with these shares of one GPU, equally fast, on two GPUs of one node."""
    way = {"pool": "v", "gpus": 1, "throughput": 1.0}
    options = [[way | {"share": share}] for share in shares]
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": 1, "gpus_per_node": 2}]},
        "jobs": [{"id": f"j{job}", "options": each} for job, each in enumerate(options)],
    }


def test_small_shares_find_no_room_beside_a_large_one() -> None:
    """Of 2 GPUs, 1.8 GPUs in all fill the sum, but beside .8 there is no room for .3."""
    solution = optsched.solve(
        on_shares(0.8, 0.3, 0.3, 0.3, 0.3), "max-throughput", constraints=["placeable"]
    )
    assert solution.objective == pytest.approx(4.8)


def test_known_jobs_are_packed_the_largest_first() -> None:
    """Where .3 and .5 share a GPU, another .5 and .7 do not find room."""
    C = optsched.compile(optsched.load(on_shares(0.3, 0.5, 0.5, 0.7))).classes(frozenset())
    worth = np.asarray(C.throughput.sum(axis=0)).ravel()
    alone, again = (
        best_fit(Space.of(C), worth, sp.csr_matrix(C.member), C.count, first)[0]
        for first in (None, np.asarray(C.limit))
    )
    assert (worth @ alone, worth @ again) == (3.0, 4.0)


def test_islands_of_a_server_are_nodes_below_a_level() -> None:
    """Three gangs of 3 and one of 4 leave a GPU on each of three islands: a gang of 2 gets both of one server."""
    islands = ["s0-a", "s0-b", "s1-a", "s1-b"]
    pool = {"name": "v", "nodes": [{"name": name, "gpus": 4} for name in islands]}
    servers = {"server": {"s0": islands[:2], "s1": islands[2:]}}
    rates = {"a": (3, {"1": 9.0}), "b": (3, {"1": 9.0}), "c": (3, {"1": 9.0}), "d": (4, {"1": 9.0})}
    rates["e"] = 2, {"1": 5.0, "server": 4.0, "cluster": 1.0}
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [pool], "levels": servers},
        "jobs": [
            {"id": name, "gpus": gpus, "throughput": {"v": {str(gpus): levels}}}
            for name, (gpus, levels) in rates.items()
        ],
    }
    solution = optsched.solve(document, "max-throughput", integral=True, constraints=["placeable"])
    assert solution.objective == pytest.approx(40.0)
    assert solution.placement is not None and not solution.placement.refused
    names = solution.instance.jobs_table.names
    gpus = {
        names[job]: held
        for job, held in zip(
            solution.allocation.rows.job[solution.placement.row].tolist(),
            solution.placement.gpus,
            strict=True,
        )
    }
    assert {gpu.split("-")[0] for gpu in gpus["e"]} < {"s0", "s1"}
    assert len({gpu.split("/")[0] for gpu in gpus["e"]}) == 2
