"""Shares of GPUs are packed into whole GPUs: against brute force, in rounds, of whole jobs and in schedules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.optimize as so
from documents import instance_document
from rounds_cases import cut

import optsched
from optsched import Instance, Solution
from optsched.cli.main import main
from optsched.errors import UsageError
from optsched.placement import METHODS

# Private names: single searches and bounds, without the choice among them
from optsched.placement.shares import Shares, packing
from optsched.solution import Allocation

pytestmark = pytest.mark.property

SIZES = (0.1, 0.2, 0.25, 0.3, 1 / 3, 0.4, 0.5, 0.6, 0.7, 1.0)


def sharing(
    shares: Sequence[float], gpus: Sequence[int] | None = None, nodes: int = 1, per_node: int = 2
) -> Instance:
    """Jobs on a pool, each with one option that holds a share of some GPUs."""
    jobs = [
        {
            "id": f"j{i}",
            "steps": 100,
            "options": [{"pool": "a", "gpus": g, "share": s, "throughput": 1.0}],
        }
        for i, (s, g) in enumerate(zip(shares, gpus or [1] * len(shares), strict=True))
    ]
    pools = [{"name": "a", "nodes": nodes, "gpus_per_node": per_node}]
    return Instance.from_document(instance_document(pools, jobs))


def can_pack(shares: Sequence[float], gpus: Sequence[int], count: int) -> bool:
    """Every choice of GPUs for every row."""

    def rest(row: int, load: tuple[float, ...]) -> bool:
        if row == len(shares):
            return True
        return any(
            all(load[gpu] + shares[row] <= 1 + 1e-9 for gpu in chosen)
            and rest(
                row + 1,
                tuple(taken + shares[row] * (gpu in chosen) for gpu, taken in enumerate(load)),
            )
            for chosen in itertools.combinations(range(count), gpus[row])
        )

    return rest(0, (0.0,) * count)


# --- packing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_packing_agrees_with_brute_force(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(60):
        rows, count = int(random.integers(1, 7)), int(random.integers(1, 5))
        gpus = random.integers(1, min(3, count) + 1, rows) if seed % 2 else np.ones(rows, np.int64)
        share = random.choice(SIZES, rows)
        found = packing(gpus, share, count)
        assert found.fits is can_pack(share.tolist(), gpus.tolist(), count)
        load = np.zeros(count)
        for row, mine in enumerate(found.gpus):
            assert len(np.unique(mine)) == gpus[row]
            load[mine] += share[row]
        assert load.max(initial=0.0) <= 1 + 1e-8
        assert not found.fits or len(found.gpus) == rows


@pytest.mark.parametrize("seed", range(4))
def test_the_number_of_rows_that_fit_lies_between_its_bounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(30):
        rows, count = int(random.integers(1, 7)), int(random.integers(1, 4))
        gpus, share = np.ones(rows, np.int64), random.choice(SIZES, rows)
        held, most = Shares(np.zeros(rows, np.int64), gpus, share, np.array([count])).most()
        # of single GPUs the smallest shares are the best choice
        best = max(
            m for m in range(rows + 1) if can_pack(np.sort(share)[:m].tolist(), [1] * m, count)
        )
        assert held == most == best


def test_many_equal_shares_are_decided_without_a_search() -> None:
    for share, each in ((0.6, 1), (0.34, 2), (0.09, 11), (0.05, 20)):
        gpus = np.ones(each * 500 + 1, np.int64)
        assert packing(gpus[1:], np.full(len(gpus) - 1, share), 500).fits is True
        assert packing(gpus, np.full(len(gpus), share), 500).fits is False


@pytest.mark.filterwarnings("error")
def test_a_share_as_good_as_nothing_fits_beside_others() -> None:
    solution = optsched.solve(sharing((0.6, 0.6, 1e-300)), "max-throughput")
    assert solution.ok and solution.objective == pytest.approx(3.0)


# --- rounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_rounds_run_what_fits_and_bound_what_is_possible(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, count = int(random.integers(2, 6)), int(random.integers(1, 4))
    share = (
        np.full(rows, random.choice([0.3, 0.4, 0.6, 0.7]))
        if seed % 3 == 0
        else random.choice(SIZES, rows)
    )
    gpus = random.integers(1, 3, rows) if seed % 2 and count > 1 else np.ones(rows, np.int64)
    instance = sharing(share.tolist(), gpus.tolist(), per_node=count)
    C = optsched.compile(instance).per_job().classes(frozenset())
    x = random.choice([1.0, 0.5, 0.25, 0.8], C.columns)
    made = Allocation(C, x * min(1.0, count / float(x @ (share * gpus))))
    sets = [part for size in range(rows + 1) for part in itertools.combinations(range(rows), size)]
    sets = [
        part
        for part in sets
        if can_pack(share[list(part)].tolist(), gpus[list(part)].tolist(), count)
    ]
    cover = np.array([[row in part for part in sets] for row in range(rows)], float)
    best = (
        1.0
        / so.linprog(np.ones(len(sets)), A_ub=-cover, b_ub=-made.rows.fraction, method="highs").fun
    )
    for method in METHODS:
        try:
            rounds = cut(made, method)
        except UsageError:
            assert method == "open-shop"
            continue
        assert all(tuple(rounds.running(number).tolist()) in sets for number in range(len(rounds)))
        assert rounds.bound >= min(1.0, best) - 1e-7
        if method != "priority":
            assert rounds.scale <= best + 1e-7
            assert not rounds.finished or rounds.scale == pytest.approx(min(1.0, best), abs=1e-6)


# --- whole jobs and schedules ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three() -> Solution:
    """Three jobs with 0.6 of a GPU each on two GPUs: 1.8 in sum, but two of them fit."""
    return optsched.solve(sharing([0.6] * 3), "max-throughput", integral=True)


def fields(solution: Solution, document: dict[str, Any]) -> list[str]:
    return [finding.field for finding in optsched.verify(solution.instance, document).findings]


def test_whole_jobs_say_how_many_of_them_fit(three: Solution) -> None:
    document = three.to_document()
    assert three.objective == pytest.approx(3.0)
    assert document["packed"] == {"rows": 3, "held": 2, "most": 2}
    assert fields(three, document) == ["packed"]
    assert optsched.solve(sharing([0.6, 0.4, 0.6]), "max-throughput", integral=True).packed is None
    assert (
        "packed" not in optsched.solve("@quickstart", "max-throughput", integral=True).to_document()
    )


def test_every_place_that_names_the_status_says_how_many_fit(three: Solution) -> None:
    words = "of its 3 rows side by side, 2 fit"
    assert words in repr(three)
    assert sum(words in line for line in three.summary().splitlines()) == 2
    compared = optsched.compare(three.instance, [("max-throughput", {"integral": True})])
    assert words in compared.summary()
    assert compared.to_document()["rows"][0]["packed"] == {"rows": 3, "held": 2, "most": 2}
    verified = optsched.verify(three)
    assert not verified.ok and f"{words} on whole GPUs" in str(verified)
    in_rounds = optsched.verify(optsched.realise(three))
    assert in_rounds.ok and in_rounds.notes == (words,) and words in str(in_rounds)


def test_nothing_is_said_of_rows_that_the_count_finds_to_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the first packing leaves it open whether all rows fit, the count of those that do may settle it."""
    monkeypatch.setattr(Shares, "fits", lambda *_: None)
    solution = optsched.solve(sharing([0.6, 0.4, 0.6]), "max-throughput", integral=True)
    assert solution.packed is None and "packed" not in solution.to_document()


def test_a_file_that_says_nothing_of_shares_that_do_not_fit_is_refused(three: Solution) -> None:
    document = three.to_document()
    del document["packed"]
    assert fields(three, document) == ["packed"]
    assert fields(three, document | {"packed": {"rows": 3, "held": 3, "most": 3}}) == [
        "packed",
        "packed.held",
        "packed.most",
    ]
    fits = optsched.solve(sharing([0.6, 0.4, 0.6]), "max-throughput", integral=True)
    assert fields(fits, fits.to_document()) == []
    assert fields(fits, fits.to_document() | {"packed": {"rows": 3, "held": 2, "most": 2}}) == [
        "packed"
    ]


def test_rounds_of_shares_that_do_not_fit_are_refused(three: Solution) -> None:
    document = optsched.realise(three).to_document()
    assert document["rounds"]["scale"] == pytest.approx(2 / 3)
    assert fields(three, document) == []
    seconds = document["rounds"]["window"]
    at_once = {
        "method": "at-once",
        "scale": 1.0,
        "bound": 1.0,
        "slices": [{"duration": seconds, "run": [0, 1, 2]}],
    }
    assert fields(three, document | {"rounds": document["rounds"] | at_once}) == [
        "rounds.slices[0].run"
    ]


def test_rows_that_take_turns_say_what_part_of_their_time_they_can_have() -> None:
    """Of four jobs with 0.6 of two GPUs two run at any time: each has half of the time, not 5/6."""
    solution = optsched.solve(sharing([0.6] * 4), "max-min-fairness")
    assert solution.packed is not None and solution.packed.turns == pytest.approx(0.6)
    assert solution.objective is not None
    assert solution.objective * solution.packed.turns == pytest.approx(0.5)
    words = "its rows can have at most 60.0 % of their time"
    assert words in repr(solution) and words in solution.summary()
    document = solution.to_document()
    assert fields(solution, document) == ["packed"]
    assert fields(solution, {key: document[key] for key in document if key != "packed"}) == [
        "packed"
    ]
    in_rounds = optsched.realise(solution)
    assert in_rounds.rounds is not None
    assert in_rounds.rounds.scale == pytest.approx(solution.packed.turns)
    assert optsched.verify(in_rounds).ok
    halves = optsched.solve(sharing([0.5] * 8), "max-min-fairness")
    assert halves.packed is None and optsched.verify(halves).ok


def test_schedules_say_how_many_of_their_jobs_fit() -> None:
    solution = optsched.solve(sharing([0.6] * 3), "makespan-unrelated")
    document = solution.to_document()
    assert document["packed"] == {"rows": 3, "held": 2, "most": 2, "time": 0.0}
    assert fields(solution, document) == ["packed"]
    del document["packed"]
    assert fields(solution, document) == ["packed"]


def test_the_command_line_tells_it(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from optsched.instance import instance_bytes

    file = tmp_path / "three.json"
    file.write_bytes(instance_bytes(sharing([0.6] * 3), "json"))
    assert (
        main(
            ["solve", str(file), "-f", "max-throughput", "-O", "integral=true", "--rounds", "auto"]
        )
        == 0
    )
    told = capsys.readouterr().out
    assert "of a relaxation that adds up shares of GPUs" in " ".join(told.split())
    assert "of its 3 rows side by side, 2 fit" in " ".join(told.split())
    assert told.index("relaxation") < told.index("objective    3")
    assert "66.7 % of every fraction" in told and "all rows fit" not in told


@pytest.mark.parametrize("options", [[], ["-O", "integral=true"]])
def test_the_command_line_refuses_what_cannot_run_side_by_side(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    from optsched.instance import instance_bytes

    file, plan = tmp_path / "three.json", tmp_path / "plan.json"
    file.write_bytes(instance_bytes(sharing([0.6] * 3), "json"))
    solve = ["solve", str(file), "-f", "max-throughput", *options, "-o", str(plan)]
    assert main([*solve, "--require-optimal"]) == 5
    assert main(solve) == 0
    assert main(["verify", str(file), str(plan)]) == 6
    assert "packed: of its 3 rows side by side, 2 fit on whole GPUs" in capsys.readouterr().err
    assert main([*solve, "--rounds", "auto"]) == 0
    assert main(["verify", str(file), str(plan)]) == 0


def test_rows_that_run_all_the_time_run_side_by_side_whole_jobs_or_not() -> None:
    solution = optsched.solve(sharing([0.6] * 3), "max-throughput")
    assert solution.allocation is not None and not solution.allocation.integral
    document = solution.to_document()
    assert document["packed"] == {"rows": 3, "held": 2, "most": 2}
    assert fields(solution, document) == ["packed"]
    assert fields(solution, document | {"packed": {"rows": 3, "held": 3, "most": 3}}) == [
        "packed",
        "packed.held",
        "packed.most",
    ]
    assert "of its 3 rows side by side, 2 fit" in solution.summary()
