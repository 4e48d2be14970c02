"""Sums of utilities of many classes, most of which are pinned to what they choose: the same optimum, in less time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_prices_totals import scattered, solved, total, worth

import optsched
from optsched.program import AllocationProgram, SideRows
from optsched.program.side_rows import SameWords
from optsched.registry import load_solver
from optsched.solution import Status, Termination
from optsched.solvers import Limits

# Private names: sessions and steps of one back-end, without the engine
from optsched.solvers.prices import best_response as choosing
from optsched.solvers.prices import pinned_total
from optsched.solvers.prices import solve_concave as back_end
from optsched.solvers.prices.best_response import Choices, best_responses
from optsched.solvers.prices.interior import Curve
from optsched.solvers.prices.pinned_total import PinnedTotal

pytestmark = pytest.mark.property

EXPONENTS = (0.0, -1.0, 0.5, -4.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pin of few classes too."""
    monkeypatch.setattr(back_end, "PINNED_FROM", 50)
    monkeypatch.setattr(back_end, "PINNED_FROM_KNOWN", 50)
    monkeypatch.setattr(pinned_total, "SMALLEST", 40)
    monkeypatch.setattr(pinned_total, "FEWEST_FREE", 20)


@pytest.fixture(params=["numpy", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices made in both ways."""
    if request.param == "numpy":
        monkeypatch.setattr(choosing, "compiled", lambda: None)
    elif choosing.compiled() is None:
        pytest.skip("numba (the extra fast) is not installed")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each search found the answer."""
    found: list[bool] = []
    run = PinnedTotal.run

    def noted(self: PinnedTotal, prices: Any = None) -> Any:
        answer = run(self, prices)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(PinnedTotal, "run", noted)
    return found


def drawn(
    seed: int, exponent: float, classes: int = 50, places: int = 4
) -> tuple[np.ndarray, np.ndarray, Curve]:
    """Levels (w, K) with 1 the highest, prices of the places, and utilities that choose all sorts of places."""
    random = np.random.default_rng(seed)
    a = random.lognormal(0.0, 1.0, (places, classes)) * (random.random((places, classes)) > 0.2)
    a[random.integers(0, places, classes), np.arange(classes)] = 1.5
    a /= a.max(axis=0)
    return (
        a,
        random.lognormal(0.0, 1.0, places),
        Curve(10.0 ** random.uniform(-1.0, 1.5, classes), exponent),
    )


def worth_of(choices: Choices, a: np.ndarray, curve: Curve) -> np.ndarray:
    """What each class has of its choice, beyond its costs: the bound of its slope and rent."""
    return choices.rent + curve.surplus(choices.slope)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_choices_are_the_best_of_all_mixtures(exponent: float) -> None:
    a, q, curve = drawn(3, exponent)
    choices, lane = best_responses(a, q[:, np.newaxis], curve), np.arange(a.shape[1])
    assert (
        {bool(one) for one in choices.alone}
        == {bool(one) for one in choices.all_time}
        == {False, True}
    )
    assert (
        choices.rent >= (a * choices.slope - q[:, np.newaxis]).max(axis=0) - 1e-12
    ).all() and choices.rent.min() >= 0
    best = np.full(a.shape[1], -np.inf)
    parts = np.linspace(0.0, 1.0, 2001)[1:, np.newaxis]
    for one in range(len(a)):
        for other in (
            None,
            *range(len(a)),
        ):  # nobody needs more than two places, or one and to be idle
            level = parts * a[one] + (0.0 if other is None else (1.0 - parts) * a[other])
            cost = parts * q[one] + (0.0 if other is None else (1.0 - parts) * q[other])
            with np.errstate(divide="ignore"):
                best = np.maximum(best, (curve.value(level) - cost).max(axis=0))
    bound = worth_of(choices, a, curve)
    assert (bound >= best - 1e-9).all()  # an upper bound, and one that is reached but for the grid
    assert bound == pytest.approx(best, rel=1e-3, abs=1e-3)
    full = choices.all_time
    assert choices.slope[full] == pytest.approx(curve.slope(a[choices.place, lane])[full])


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_numpy_and_compiled_choices_agree(exponent: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    a, q, curve = drawn(11, exponent, 6000)
    q[1] = 0.0
    fast = best_responses(a, q[:, np.newaxis], curve)
    monkeypatch.setattr(choosing, "compiled", lambda: None)
    plain = best_responses(a, q[:, np.newaxis], curve)
    for name in ("place", "all_time", "alone"):
        assert (getattr(fast, name) == getattr(plain, name)).all(), name
    for name in ("slope", "rent", "margin"):
        assert getattr(fast, name) == pytest.approx(getattr(plain, name), rel=1e-9, abs=1e-12), name


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("exponent", [0.0, -1.0])
def test_classes_that_pay_different_prices_choose_each_for_itself(exponent: float) -> None:
    a, q, curve = drawn(4, exponent)
    costs = q[:, np.newaxis] * np.random.default_rng(4).lognormal(0.0, 1.0, a.shape)
    choices = best_responses(a, costs, curve)
    for k in range(a.shape[1]):
        alone = best_responses(a[:, [k]], costs[:, [k]], Curve(curve.size[[k]], exponent))
        for name in ("place", "all_time", "alone", "slope", "rent", "margin"):
            one, other = getattr(choices, name)[k], getattr(alone, name)[0]
            assert one == pytest.approx(other, rel=1e-12), name


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), exponent=st.sampled_from(EXPONENTS), part=st.floats(0.05, 0.95))
def test_choices_stay_within_their_margin(seed: int, exponent: float, part: float) -> None:
    a, q, curve = drawn(seed, exponent)
    choices, random = best_responses(a, q[:, np.newaxis], curve), np.random.default_rng(seed)
    for one in np.flatnonzero((choices.margin > 1e-9) & choices.alone)[:10]:
        change = part * min(choices.margin[one], 0.9)
        moved = q * (1.0 + change * random.choice([-1.0, 1.0], len(q)))
        alone = Curve(curve.size[[one]], exponent)
        after = best_responses(a[:, [one]], moved[:, np.newaxis], alone)
        assert (after.place[0], after.all_time[0], after.alone[0]) == (
            choices.place[one], choices.all_time[one], True
        )  # fmt: skip


@pytest.mark.usefixtures("way")
def test_prices_of_nothing_send_all_to_their_best_place() -> None:
    a, q, curve = drawn(5, 0.0)
    choices = best_responses(a, np.zeros((len(q), 1)), curve)
    assert choices.all_time.all() and (a[choices.place, np.arange(a.shape[1])] == 1.0).all()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("exponent", [0.0, -1.0, 0.5, 0.9])
@pytest.mark.parametrize(("jobs", "pools"), [(400, 1), (400, 3), (600, 6)])
def test_pinned_totals_are_the_same(
    jobs: int, pools: int, exponent: float, answers: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = scattered(jobs, pools, exponent)
    pinned = solved(program)
    assert len(answers) == 1
    monkeypatch.setattr(back_end, "PINNED_FROM", 10**9)
    whole = solved(program)
    scale = worth(program, whole)
    assert pinned.status is Status.OPTIMAL and pinned.certificate.ok
    assert pinned.value == pytest.approx(whole.value, abs=3e-9 * scale)
    assert -1e-12 * scale <= pinned.bound - pinned.value <= 2e-9 * scale


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("exponent", [0.0, -1.0, 0.5])
@pytest.mark.parametrize("sides", [1, 3])
def test_pinned_totals_with_side_rows_are_the_same(
    sides: int, exponent: float, answers: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = limited(scattered(800, 3, exponent), sides)
    pinned = solved(program)
    assert len(answers) == 1 and pinned.certificate.ok
    monkeypatch.setattr(back_end, "PINNED_FROM", 10**9)
    whole = solved(program)
    scale = worth(program, whole)
    assert pinned.value == pytest.approx(whole.value, abs=3e-9 * scale)
    assert -1e-12 * scale <= pinned.bound - pinned.value <= 2e-9 * scale


def limited(program: AllocationProgram, sides: int) -> AllocationProgram:
    """With a budget, whose prices per GPU have no exact quotients, and quotas of some of the jobs."""
    if sides == 0:
        return program
    C = program.classes
    gpus, x = C.usage.toarray().sum(axis=0), program.even()
    price = np.array([1.1, 0.7, 3.3])[C.usage.toarray().argmax(axis=0)]
    rows = [gpus * price, *(gpus * (C.class_a % 5 == tenant) for tenant in range(sides - 1))]
    matrix = sp.csr_matrix(np.array(rows))
    most = 0.7 * (matrix @ x)
    side = SideRows("side", matrix, np.full(sides, -np.inf), most, SameWords("a limit"))
    return replace(program, side=(side,))


@pytest.mark.unit
@pytest.mark.parametrize("exponent", [0.0, -1.0, 0.5])
@pytest.mark.parametrize("sides", [0, 3])
def test_of_many_classes_most_are_pinned(sides: int, exponent: float, answers: list[bool]) -> None:
    program = limited(scattered(9000, 3, exponent), sides)
    outcome = solved(program)
    assert answers == [True] and outcome.values.termination is Termination.OPTIMAL
    assert abs(outcome.bound - outcome.value) <= 2e-9 * worth(program, outcome)


@pytest.mark.unit
@pytest.mark.usefixtures("small")
def test_rows_that_differ_by_a_factor_are_solved_by_the_whole_search(answers: list[bool]) -> None:
    random = np.random.default_rng(8)
    rates = np.outer(random.lognormal(0, 1, 300), [1.0, 2.0, 4.0])
    program = total(rates, 1, [20, 30, 10], 0.0, random.choice([1.0, 2.0], 300))
    outcome = solved(program)
    assert answers == [False]
    assert outcome.status is Status.OPTIMAL
    assert outcome.bound - outcome.value <= 1e-8 * worth(program, outcome)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("exponent", [0.0, -1.0])
def test_prices_that_are_known_save_steps(exponent: float) -> None:
    program = scattered(2500, 3, exponent)
    solver = load_solver("prices")()
    first = solver.solve_allocation(program, Limits())
    assert first.y is not None
    known = first.y[len(program.classes) :][:3]
    again = solver.solve_allocation(program, Limits(), known * [1.001, 0.999, 1.0])
    assert again.termination is Termination.OPTIMAL and again.iterations < first.iterations
    assert again.objective == pytest.approx(first.objective, rel=1e-8)
    for wrong in (known * [1.0, 100.0, 1e-3], known * [1.0, 1.0, 0.0], np.zeros(3)):
        anyway = solver.solve_allocation(program, Limits(), wrong)
        assert anyway.termination is Termination.OPTIMAL
        assert anyway.objective == pytest.approx(first.objective, rel=1e-8)


@pytest.mark.usefixtures("small")
def test_limits_end_a_pinned_search_with_an_honest_gap() -> None:
    program = scattered(500, 3)
    best = solved(program)
    for work in (1, 5, 20, 30):
        stopped = solved(program, work=work)
        assert stopped.certificate.ok and stopped.bound >= best.value - 1e-6 >= stopped.value - 2e-6
        if stopped.status is not Status.OPTIMAL:
            assert stopped.values.termination is Termination.WORK_LIMIT
    assert solved(program, work=1).status is Status.FEASIBLE
    assert solved(program, time=1e-9).values.termination is Termination.TIME_LIMIT


@pytest.mark.usefixtures("small")
def test_the_same_answer_twice() -> None:
    random = np.random.default_rng(2)
    instance = optsched.Instance.from_arrays(
        pools={"a": 20, "b": 30}, throughput=random.lognormal(0, 1, (200, 2))
    )
    first, second = (
        optsched.solve(instance, "proportional-fairness", solver="prices").to_document()
        | {"timings": 0}
        for _ in range(2)
    )
    assert first == second and first["status"] == "optimal"
