"""The constraint `placeable` where contents of nodes are priced: honest bounds, placements that hold."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from all_placements import KINDS, best_total, flaws_of, small_instance

import optsched
from optsched.instance.durations import Timer
from optsched.program import LinearProgram, Space

# Private: what a single node can hold
from optsched.program.space import best_fit, bins, contents, node_bins
from optsched.program.space.bins import Bin
from optsched.program.space.contents import GangPart
from optsched.solvers import Limits
from optsched.solving import Engine, contents_on_demand, in_space

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_one_of_all_placements_and_the_answer_is_placed(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    document = small_instance(kind, seed)
    instance = optsched.load(document)
    solution = optsched.solve(
        instance, "max-throughput", integral=True, constraints=["placeable"], gap=0.0
    )
    expected = best_total(document)
    assert solution.certificate.ok
    verdict = optsched.verify(solution)
    assert verdict.ok, verdict
    assert verdict.bound == "verified"
    assert solution.bound is not None
    assert solution.objective is not None
    assert solution.bound >= expected * (1 - 1e-9)
    assert solution.objective <= expected * (1 + 1e-9)
    # Contents that are priced are enough for nearly all of it.
    assert solution.objective >= 0.9 * expected
    if expected == 0:
        return
    assert flaws_of(solution, document) == []


@pytest.mark.parametrize(("in_time", "expected"), [(True, 54.0), (False, 48.0)])
def test_gangs_that_find_no_different_gpus_are_numbered_and_priced_again(
    in_time: bool, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without time for that, the answer is where the first search began."""
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    now, number = [0.0], Space.numbered

    def slow(*given: Any) -> Space:
        now[0] = 0.0 if in_time else 100.0
        return number(*given)

    monkeypatch.setattr(Space, "numbered", slow)
    solution = solved_within(now, 50.0, small_instance("spread", 85))
    assert solution.objective == pytest.approx(expected)
    ended = "imprecise" if in_time else "time_limit"
    assert (solution.status, solution.termination) == ("feasible", ended)
    verdict = optsched.verify(solution)
    assert verdict.ok and verdict.bound == "verified"


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_are_added_are_those_of_the_space(kind: str) -> None:
    """The entries of contents in a running program, and in one that is written with them."""
    C = optsched.compile(optsched.load(small_instance(kind, 3))).classes(frozenset())
    space = Space.of(C)
    all_ = space.contents
    empty = space.without_contents()

    def written(space: Space) -> LinearProgram:
        lp = LinearProgram()
        x = lp.variables(C.columns, name="x", implied=(0.0, C.limit))
        space.add_to(lp, x, whole=False)
        return lp

    before, after = written(empty).arrays, written(space).arrays
    added = empty.columns_of_contents(before, all_)
    assert added.shape[1] == len(all_.row) > 0
    expected = after.A[:, before.shape[1] :]
    assert abs(added - expected).max() == 0
    most = empty.most_contents(all_.node_class, all_.of_gpu)
    assert np.array_equal(most, after.implied_upper[before.shape[1] :])


def shares_with_cpus(seed: int) -> dict[str, Any]:
    """Thirty jobs that share two GPUs of five nodes, whose CPUs suffice for some of them."""
    random = np.random.default_rng(seed)
    kinds = [(share, float(random.integers(2, 16))) for share in (0.35, 0.45, 0.55, 0.7, 1.0)]
    jobs = []
    for number in range(30):
        share, cpu = kinds[number % len(kinds)]
        option = {"pool": "v", "gpus": 1, "nodes": 1, "share": share, "throughput": share + 0.1}
        jobs.append({"id": f"j{number}", "options": [option | {"uses": {"cpu": cpu}}]})
    nodes = [{"name": f"n{number}", "gpus": 2, "cpus": 17.0} for number in range(5)]
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": nodes}]},
        "jobs": jobs,
    }


@pytest.mark.parametrize("seed", range(6))
def test_prices_bound_all_contents(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is between the best placement and what the program without nodes promises."""
    document = shares_with_cpus(seed)
    options: dict[str, Any] = {"integral": True, "constraints": ["placeable"], "gap": 0.0}
    best = optsched.solve(document, "max-throughput", **options).objective
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    priced = optsched.solve(document, "max-throughput", **options)
    without = optsched.solve(document, "max-throughput").objective
    assert best is not None
    assert priced.bound is not None
    assert without is not None
    assert best * (1 - 1e-9) <= priced.bound <= 1.1 * best
    assert priced.bound < 0.999 * without
    assert optsched.verify(priced).bound == "verified"


def test_verify_refuses_prices_that_contents_exceed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound, prices, or both together that say less than contents of nodes are worth."""
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    instance = optsched.load(shares_with_cpus(0))
    solution = optsched.solve(
        instance, "max-throughput", integral=True, constraints=["placeable"], gap=0.0
    )
    document = solution.to_document()
    assert document["bound_source"] == "dual"
    nodes, room = document["duals"]["count"][0], document["duals"]["node"]
    assert nodes > 0 and max(room) > 0

    def findings(**changes: Any) -> set[str]:
        changed = {**document, "duals": {**document["duals"]}}
        for path, value in changes.items():
            if path in changed["duals"]:
                changed["duals"][path] = value
            else:
                changed[path] = value
        changed["gap"] = abs(changed["bound"] - changed["objective"]) / changed["objective"]
        return {finding.field for finding in optsched.verify(instance, changed).findings}

    assert not findings()
    assert "bound" in findings(bound=document["bound"] * 0.999)
    assert "bound" in findings(bound=document["bound"] * 1.001)
    assert "duals" in findings(node=[0.9 * price for price in room])
    # Five nodes that cost less are a lower bound, and the sum of all numbers is right again.
    less = 0.01 * nodes
    assert {"bound", "duals"} <= findings(count=[nodes - less], bound=document["bound"] - 5 * less)


def test_many_shares_are_placed() -> None:
    """A node has more contents than are written down."""
    random = np.random.default_rng(0)
    jobs = []
    for number in range(60):
        share = round(
            float(random.choice([0.11, 0.16, 0.23, 0.32, 0.37, 0.47, 0.59, 0.81, 1.0])), 2
        )
        cpu = float(random.integers(1, 14))
        option = {"pool": "v", "gpus": 1, "nodes": 1, "share": share, "throughput": share}
        jobs.append({"id": f"j{number}", "options": [option | {"uses": {"cpu": cpu}}]})
    nodes = [{"name": f"n{number}", "gpus": 4, "cpus": 40.0} for number in range(4)]
    instance = optsched.load(
        {
            "format": "optsched-instance/1",
            "cluster": {"pools": [{"name": "v", "nodes": nodes}]},
            "jobs": jobs,
        }
    )
    space = Space.of(optsched.compile(instance).classes(frozenset()))
    assert not space.complete
    solution = optsched.solve(
        instance, "max-throughput", integral=True, constraints=["placeable"], gap=0.01
    )
    assert solution.objective is not None
    assert solution.bound is not None
    assert solution.objective <= solution.bound <= 16.0 * (1 + 1e-9)
    assert solution.objective >= 0.9 * solution.bound
    assert solution.placement is not None
    assert not solution.placement.refused


@pytest.mark.parametrize(("share", "expected"), [(0.001, 1000.0), (1e-300, 1200.0)])
def test_tiny_shares(share: float, expected: float) -> None:
    """More shares on one GPU than a search could go deep; the CPUs end where the GPU does not."""
    option = {"pool": "v", "gpus": 1, "nodes": 1, "share": share, "throughput": 1.0}
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": [{"name": "a", "gpus": 1, "cpus": 12.0}]}]},
        "jobs": [
            {"id": f"j{number}", "options": [option | {"uses": {"cpu": 0.01}}]}
            for number in range(1500)
        ],
    }
    solution = optsched.solve(document, "max-throughput", integral=True, constraints=["placeable"])
    assert solution.objective == pytest.approx(expected)


def test_contents_are_all_written_down_only_where_each_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two shares of .4 and four of .3 fill two GPUs, but not where each takes the first GPU with room."""
    shares = [GangPart(0, 1, share, ()) for share in (0.4, 0.3)]
    two_gpus = Bin(shares, (0, 1), np.full(2, np.inf), 2, np.zeros(0))
    found = two_gpus.fullest(100)
    assert found is not None and [2, 4] in found.tolist()
    for module in (bins, contents):
        monkeypatch.setattr(module, "SEARCHED", 5)
    again = Bin(shares, (0, 1), np.full(2, np.inf), 2, np.zeros(0))
    assert again.fullest(100) is None


@pytest.mark.parametrize("feasible", [True, False])
def test_too_few_contents_prove_nothing_infeasible(
    feasible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That jobs do not fit into the contents that were made is no proof that they fit nowhere."""
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    option = {"pool": "v", "gpus": 1, "nodes": 1, "value": 1.0, "cost": 1.0}
    jobs, cpu = (8, 3.0) if feasible else (4, 9.0)
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": "v", "nodes": [{"name": n, "gpus": 2, "cpus": 17.0} for n in "ab"]}]
        },
        "jobs": [
            {"id": f"j{n}", "options": [option | {"share": share, "uses": {"cpu": cpu}}]}
            for n, share in zip(range(jobs), [0.4, 0.6] * jobs, strict=False)
        ],
    }
    solution = optsched.solve(document, "generalised-assignment", constraints=["placeable"])
    assert solution.termination != "infeasible"
    assert solution.status == "limit" or (feasible and solution.objective == 8.0)
    assert solution.conflicts == ()
    assert optsched.verify(solution).ok


def two_racks() -> dict[str, Any]:
    """Nodes that are alike, in racks that are told apart because a gang must be in one of them."""
    document = shares_with_cpus(0)
    names = [node["name"] for node in document["cluster"]["pools"][0]["nodes"]]
    document["cluster"]["levels"] = {"rack": {"a": names[:2], "b": names[2:]}}
    rates = {"4": {"rack": 4.0, "cluster": 1.0}}
    document["jobs"].append({"id": "gang", "gpus": 4, "throughput": {"v": rates}})
    return document


def solved_within(now: list[float], seconds: float, document: dict[str, Any]) -> optsched.Solution:
    """Solved with a time limit by a clock that stands at ``now``."""
    return optsched.solve(
        document,
        "max-throughput",
        integral=True,
        constraints=["placeable"],
        time_limit=Timer.after(seconds, clock=lambda: now[0]),
    )


def counting(function: Any, calls: list[Any]) -> Any:
    """A function that keeps the arguments of its calls."""

    def counted(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    return counted


def test_nodes_that_are_alike_have_one_program_for_their_contents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    programs: list[Any] = []
    sessions: list[Any] = []
    for kind, calls in (
        (contents_on_demand._ContentsProgram, programs),
        (contents_on_demand._PricedBin, sessions),
    ):
        monkeypatch.setattr(kind, "of", counting(kind.of, calls))
    solution = optsched.solve(
        two_racks(), "max-throughput", integral=True, constraints=["placeable"]
    )
    assert optsched.verify(solution).ok
    assert (len(programs), len(sessions)) == (1, 2)


def test_no_contents_are_made_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over once the first bin is open: the answer is that of best fit, with a bound."""
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    now, sessions = [0.0], []
    session_of = contents_on_demand._PricedBin.of

    def slow(*args: Any) -> Any:
        now[0] = 100.0
        sessions.append(args)
        return session_of(*args)

    monkeypatch.setattr(contents_on_demand._PricedBin, "of", slow)
    solution = solved_within(now, 5.0, two_racks())
    assert len(sessions) == 1
    assert (solution.status, solution.termination) == ("feasible", "time_limit")
    assert solution.objective and solution.bound
    assert optsched.verify(solution).ok


def test_pricing_stops_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bins that are not priced prove no bound, so that of the program without nodes stays."""
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    now, priced = [0.0], []
    best = contents_on_demand._PricedBin.best

    def slow(*args: Any) -> Any:
        now[0] = 100.0
        priced.append(args)
        return best(*args)

    monkeypatch.setattr(contents_on_demand._PricedBin, "best", slow)
    solution = solved_within(now, 5.0, two_racks())
    assert len(priced) == 1
    assert (solution.status, solution.termination) == ("feasible", "time_limit")
    assert optsched.verify(solution).ok


def test_best_fit_stops_in_time_for_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placing a job takes a second of 8, of which a quarter is kept."""
    now, placed = [0.0], []

    def slow(*args: Any) -> Any:
        *others, has_time = args

        def one_more() -> bool:
            now[0] += 1.0
            placed.append(bool(has_time()))
            return placed[-1]

        given: list[Any] = [*others, one_more]
        return best_fit(*given)

    monkeypatch.setattr(in_space, "best_fit", slow)
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    solution = solved_within(now, 8.0, shares_with_cpus(0))
    assert sum(placed) == 5
    assert (solution.status, solution.termination) == ("feasible", "time_limit")
    assert optsched.verify(solution).ok


def test_a_node_for_many_parts_is_given_up_after_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every part needs a pass of its own, so the number of parts says that the steps do not suffice."""
    shares = [GangPart(0, 1, 0.5 + number / 1e4, ()) for number in range(300)]
    node = Bin(shares, range(300), np.full(300, np.inf), 8, np.zeros(0))
    looked: list[Any] = []
    monkeypatch.setattr(node, "_has_gpus", counting(node._has_gpus, looked))
    assert node.fullest(5_000) is None
    assert len(looked) == 300


def test_room_is_at_most_what_its_bound_says() -> None:
    parts = [GangPart(0, 1, 0.3, (2.0,)), GangPart(0, 2, 1.0, (1.0,)), GangPart(0, 1, 0.6, (0.0,))]
    node = Bin(parts, range(3), np.array([9.0, 9.0, 2.0]), 4, np.array([13.0]))
    for held in np.ndindex(4, 3, 3):
        counts = np.array(held)
        most = node.most_extra(counts)
        extra = [node.extra(counts, part) for part in range(3)]
        assert (np.array(extra) <= most).all()
    assert node.most_extra(np.array([0, 0, 0])).tolist() == [6, 2, 2]


def test_contents_that_take_too_long_to_list_are_made_on_demand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Listing them stops after its part of the limit, and the answer is a placement."""
    ticks = itertools.count()
    random = np.random.default_rng(0)
    jobs = []
    for number in range(24):
        gpus, share = int(random.integers(1, 5)), float(random.choice([0.2, 0.3, 0.4, 0.6, 0.7]))
        way = {"pool": "v", "gpus": gpus, "share": share, "throughput": float(gpus)}
        jobs.append({"id": f"j{number}", "options": [way]})
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": 4, "gpus_per_node": 4}]},
        "jobs": jobs,
    }
    C = optsched.compile(optsched.load(document)).classes(frozenset())
    looks = Timer.after(1000.0, lambda: float(next(ticks)))
    space = Space.of(C, timer=looks)
    assert not space.complete and space.by_clock and next(ticks) < 1000
    of = Space.of
    monkeypatch.setattr(Space, "of", lambda C, apart, cells, timer: of(C, apart, cells, looks))
    solution = optsched.solve(
        document, "max-throughput", integral=True, constraints=["placeable"], time_limit=1000
    )
    assert solution.solver.by_clock and solution.objective and solution.bound
    assert optsched.verify(solution).ok


def test_pricing_leaves_the_integer_program_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first linear program alone may be larger than the limit has time for."""
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    times = list[float]()
    run_within = Engine.run_within

    def recorded(engine: Engine, session: Any, limits: Limits) -> Any:
        if not session.arrays.integer.any():
            assert limits.time is not None
            times.append(limits.time)
        return run_within(engine, session, limits)

    monkeypatch.setattr(Engine, "run_within", recorded)
    document = small_instance(KINDS[1], 3)
    rules = ["placeable"]
    optsched.solve(document, "max-throughput", integral=True, constraints=rules, time_limit=1e5)
    alone, *masters = times
    assert alone <= 1e5 * (1 - contents_on_demand.PRICED)
    assert masters and max(masters) <= 1e5 * (1 - contents_on_demand.KEPT)
