"""The tree of assignments: its optimum is that of an enumeration, from any start and any prices."""

from __future__ import annotations

from itertools import product
from unittest.mock import Mock, patch

import numpy as np
import pytest

import optsched
from optsched.arrays import FloatArray, IntArray
from optsched.decomposition.job_prices import prices_of_jobs
from optsched.generate import generate
from optsched.libraries import AssignmentProblem
from optsched.program.assignment import Assignment
from optsched.solving import assignment_tree
from optsched.solving.assignment_tree import AssignmentTree, next_reach
from optsched.solving.program_search import ProgramSearch
from optsched.solving.reassignment import AssignmentPrices, Reassignment

AGENTS, JOBS = 3, 7


def assignment(seed: int, whole: bool = True) -> tuple[Assignment, FloatArray, IntArray]:
    """A random assignment, the costs of all that fit, and these."""
    random = np.random.default_rng(seed)
    size = (AGENTS, JOBS)
    use = random.integers(3, 15, size).astype(float) if whole else random.uniform(3.0, 15.0, size)
    cost = np.round(30.0 - use + random.integers(0, 9, size))
    missing = random.random(size) < 0.1
    cost[missing] = np.inf
    column = np.where(missing, -1, np.arange(AGENTS * JOBS).reshape(size))
    room = np.full(AGENTS, np.floor(0.9 * use.sum() / AGENTS**2))
    of = Assignment(cost, use, room, column, np.arange(AGENTS))
    choices = [np.array(each) for each in product(range(AGENTS), repeat=JOBS)]
    fitting = np.array([a for a in choices if of.fits(a) and np.isfinite(of.total(a))])
    return of, np.array([of.total(a) for a in fitting]), fitting


@pytest.mark.parametrize(("moves", "seeds"), [(assignment_tree.MOVES, 3), (4, 8)])
@pytest.mark.parametrize("whole", [True, False])
def test_the_tree_finds_what_an_enumeration_finds(
    whole: bool, moves: int, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few moves cells are closed in the last one of a node, and nodes are divided often."""
    for name in ("MOVES", "FIRST_MOVES", "FIXED_EVERY"):
        monkeypatch.setattr(assignment_tree, name, min(getattr(assignment_tree, name), moves))
    monkeypatch.setattr("optsched.program.assignment.KNAPSACK_CELLS", 400)  # sizes are rounded
    settled = 0
    for seed in range(seeds):
        of, costs, fitting = assignment(seed, whole)
        if not len(costs):
            continue
        worst = fitting[costs.argmax()]
        random = np.random.default_rng(seed)
        price = random.normal(20.0, 8.0, JOBS)  # poor ones, as good prices settle most at once
        tree = AssignmentTree(of, worst, price, float(of.cost.min(axis=0).sum()), 1.0)
        tree.run(lambda: False)
        assert tree.settled and of.fits(tree.best)
        assert tree.least == costs.min()
        settled += tree.nodes > 1
    assert settled > 0


def test_a_tree_that_is_stopped_has_a_bound_and_goes_on() -> None:
    of, costs, fitting = next(
        found for found in map(assignment, range(15)) if len(found[1]) and np.ptp(found[1]) > 5
    )
    bound = float(of.cost.min(axis=0).sum())
    tree = AssignmentTree(of, fitting[costs.argmax()], np.zeros(JOBS), bound, 1.0)
    asked = 0

    def enough() -> bool:
        nonlocal asked
        asked += 1
        return asked % 50 == 0  # more than the moves of a node, which begins anew

    while not tree.settled:
        tree.run(enough)
        assert tree.bound <= costs.min() <= tree.least
    assert tree.least == costs.min()


def test_targets_between_two_costs_prove_no_more_than_they_refute() -> None:
    """At good prices the tree of a target below the optimum is empty and meets no assignment."""
    for seed in (8, 10, 19):
        of, costs, fitting = assignment(seed)
        near = fitting[(costs == costs.min() + 1.0).argmax()]
        price = prices_of_jobs(of, np.zeros(AGENTS), None, None, 60)
        # The first target is one step above the bound: .3 below the optimum
        tree = AssignmentTree(of, near, price, costs.min() - 1.3, 1.0)
        tree.run(lambda: False)
        assert tree.least == costs.min()


def test_the_bound_of_a_settled_tree_is_the_cost_of_its_assignment() -> None:
    """A bound less than a step below leaves nothing better, but a gap if it stays."""
    of, costs, fitting = assignment(8)
    tree = AssignmentTree(of, fitting[costs.argmin()], np.full(JOBS, 20.0), costs.min() - 0.4, 1.0)
    tree.run(lambda: False)
    assert tree.nodes == 0 and tree.bound == costs.min()


def test_after_a_large_tree_the_next_target_is_near() -> None:
    """It may have eight times the nodes: 512 become 4,096 where the reach grows by a third."""
    assert next_reach(6.0, 512) == pytest.approx(8.0)
    assert next_reach(6.0, 1) == next_reach(6.0, 2) == pytest.approx(24.0)


def test_sums_of_large_costs_are_rounded() -> None:
    """Without room for that, the optimum's node is closed: its bound seems to be above its cost."""
    large = 1e11
    of, costs, fitting = assignment(22)
    second = fitting[np.argsort(costs)[1]]
    price = large + 20.0 + np.random.default_rng(22).random(JOBS)
    bound = costs.min() + large * JOBS - 2.3
    tree = AssignmentTree(of._replace(cost=of.cost + large), second, price, bound, 1.0)
    tree.run(lambda: False)
    assert tree.least == costs.min() + large * JOBS


@pytest.mark.parametrize("time_limit", [600, None])
def test_a_large_tree_that_has_not_raised_the_bound_makes_way_for_the_search(
    monkeypatch: pytest.MonkeyPatch, time_limit: float | None
) -> None:
    monkeypatch.setattr("optsched.solving.engine.BRIEFLY", 0)
    monkeypatch.setattr("optsched.solving.engine.BRANCHED", 0.0)
    monkeypatch.setattr("optsched.solving.program_search.MANY_NODES", 0)
    monkeypatch.setattr("optsched.solving.program_search.SMALL_TREE", -1.0)
    monkeypatch.setattr("optsched.solving.program_search.LONG_PATIENCE", 1)
    longer = Mock(side_effect=ProgramSearch.search_longer)
    monkeypatch.setattr(ProgramSearch, "search_longer", lambda search: longer(search))
    instance = generate("gap", jobs=12, agents=3, type="d", seed=1).instance
    solution = optsched.solve(instance, "gap", time_limit=time_limit)
    longer.assert_called_once()
    assert solution.solver.name == "priced tree" and solution.status == "optimal"
    assert solution.reproducible is (time_limit is None)
    longer.reset_mock()
    monkeypatch.undo()
    monkeypatch.setattr("optsched.solving.engine.BRIEFLY", 0)
    assert optsched.solve(instance, "gap", time_limit=time_limit).objective == solution.objective
    longer.assert_not_called()


def test_worse_assignments_are_accepted_near_the_best_one() -> None:
    """Four typical losses are near, and farther away only improvements are accepted."""
    of, _, fitting = assignment(8)
    prices = AssignmentPrices(of.cost - of.cost.min(axis=0), np.zeros(AGENTS))
    search = Reassignment(of, prices, fitting[0], np.random.default_rng(1))
    spares = []

    def divide(agents: IntArray, spare: float) -> bool:
        spares.append(spare)
        return False

    search.divide = divide  # type: ignore[method-assign]
    for typical in (3.5, 4.5):
        search.lost = search.least + typical * search.typical
        search.turn()
    assert spares[0] > 0.0 and spares[1] == 0.0


def test_a_rule_makes_few_moves_when_the_time_is_over() -> None:
    """Nine equal jobs do not fit in two agents with room for four and a half each."""
    size = (2, 9)
    column = np.arange(18).reshape(size)
    full = Assignment(np.ones(size), np.full(size, 10.0), np.full(2, 45.0), column, np.arange(2))
    late = Mock(return_value=True)
    assert full.by_rule(late) is None
    assert late.call_count == 2  # once for each rule
    roomy = full._replace(room=np.array([50.0, 45.0]))
    assert roomy.by_rule(late) is not None
    assert late.call_count == 2


def test_an_assignment_that_has_no_answer_keeps_the_time_limit() -> None:
    problem = AssignmentProblem(np.ones((2, 9)), np.full((2, 9), 10.0), np.array([45.0, 45.0]))
    with patch.object(Assignment, "by_rule", autospec=True, return_value=None) as rule:
        optsched.solve(problem.instance("full"), "gap", time_limit=1e-6)
    assert rule.call_args.args[1]()
