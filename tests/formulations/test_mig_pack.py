"""MIG packing: brute force, bounds from both sides, what changes cost, and where each replica runs."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from scipy.optimize import linprog

import optsched
from optsched.errors import UsageError
from optsched.instance import Layouts
from optsched.performance import partitions_of

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=30, deadline=None)
PARTS = {"A30": {"1g.6gb": 1 / 4, "2g.12gb": 1 / 2, "4g.24gb": 1.0}}
PARTS["A100"] = {
    "1g.5gb": 1 / 8, "1g.10gb": 1 / 4, "2g.10gb": 1 / 4, "3g.20gb": 1 / 2, "4g.20gb": 1 / 2, "7g.40gb": 1.0,
}  # fmt: skip
SMALL_A100 = [profile for profile in PARTS["A100"] if profile != "1g.10gb"]


def document(
    rates: dict[str, dict[str, float]],
    demands: dict[str, float],
    gpu: str = "A30",
    gpus: int = 6,
    replicas: int = 12,
    **more: Any,
) -> dict[str, Any]:
    """Services with their rates by profile, on GPUs of a pool ``p``."""
    pool = {"name": "p", "gpu": gpu, "nodes": 1, "gpus_per_node": gpus} | more
    jobs = [
        {
            "id": f"{service}-{number}",
            "workload": service,
            "options": [
                {
                    "pool": "p",
                    "gpus": 1,
                    "share": PARTS[gpu][profile],
                    "throughput": rate,
                    "attributes": {"mig": profile},
                }
                for profile, rate in by_profile.items()
            ],
        }
        for service, by_profile in rates.items()
        for number in range(replicas)
    ]
    constraints = [
        {"kind": "minimum-throughput", "workload": service, "rate": demand}
        for service, demand in demands.items()
    ]
    return instance_document([pool], jobs, constraints=constraints)


def draw(random: np.random.Generator, profiles: list[str], services: int) -> dict[str, Any]:
    """Rates that grow with the profile, by less than its size."""
    rates = {}
    for service in range(services):
        size = np.array([float(profile.partition("g")[0]) for profile in profiles])
        rate = np.round(random.uniform(5, 20) * size ** random.uniform(0.5, 1.0), 1)
        first = int(random.integers(0, 2))
        rates[f"s{service}"] = dict(zip(profiles[first:], rate[first:].tolist(), strict=True))
    return rates


def layouts_of(gpu: str) -> Layouts:
    pool = optsched.Instance.from_document(document({}, {}, gpu)).cluster.pools[0]
    return Layouts(partitions_of(pool))


def covers(supply: list[int], rates: list[list[float]], demands: list[float]) -> bool:
    """Whether slices of each profile carry all demands, by trying all ways to share them out."""
    if not demands:
        return True

    def ways(left: list[int], got: float, profile: int) -> bool:
        if got >= demands[0] - 1e-9:
            return covers(left, rates[1:], demands[1:])
        if profile == len(left):
            return False
        for taken in range(left[profile], -1, -1):
            rest = [*left[:profile], left[profile] - taken, *left[profile + 1 :]]
            if ways(rest, got + taken * rates[0][profile], profile + 1):
                return True
        return False

    return ways(supply, 0.0, 0)


def fewest(
    layouts: Layouts, rates: dict[str, Any], demands: dict[str, float], most: int
) -> int | None:
    """GPUs of the best packing, by trying all layouts of all GPUs."""
    names = layouts.names
    by_service = [[rates[service].get(name, 0.0) for name in names] for service in demands]
    for gpus in range(most + 1):
        for chosen in combinations_with_replacement(layouts.counts.tolist(), gpus):
            supply = np.sum(chosen, axis=0).astype(int).tolist() if chosen else [0] * len(names)
            if covers(supply, by_service, list(demands.values())):
                return gpus
    return None


@given(seed=seeds)
@few
def test_the_fewest_gpus_are_those_of_all_packings(seed: int) -> None:
    random = np.random.default_rng(seed)
    rates = draw(random, list(PARTS["A30"]), 2)
    demands = {service: float(np.round(random.uniform(5, 60), 1)) for service in rates}
    best = fewest(layouts_of("A30"), rates, demands, 3)
    problem = document(rates, demands, gpus=3)
    solution = optsched.solve(problem, "mig-pack")
    if best is None:
        assert solution.status == "infeasible"
        return
    assert (solution.status, solution.objective) == ("optimal", best)
    assert solution.certificate.ok
    assert optsched.verify(problem, solution.to_document()).ok
    for service, demand in demands.items():
        made = sum(r for job, r in solution.throughput.items() if job.startswith(service))
        assert made >= demand - 1e-6
    check_slices(solution, "A30")


def check_slices(solution: optsched.Solution, gpu: str) -> None:
    """Each replica has a slice of its profile; slices of a GPU do not overlap; layouts are as stated."""
    parts = {part.profile: part for part in layouts_of(gpu).partitions}
    found = optsched.slices(solution)
    assert solution.schedule is not None
    runs = {row["job"]: row["attributes"]["mig"] for row in solution.schedule.to_records()}
    assert sorted(each.job for each in found.slices if each.job) == sorted(runs)
    taken: dict[str, list[int]] = {}
    for each in found.slices:
        profile, _, start = each.slice.partition("@")
        assert int(start) in parts[profile].starts
        assert not each.job or runs[each.job] == profile
        taken.setdefault(each.gpu, []).extend(
            range(int(start), int(start) + parts[profile].memory_slices)
        )
    assert all(len(set(mine)) == len(mine) for mine in taken.values())
    assert len(taken) == sum(solution.schedule.layouts["p"].values()) if taken else True


@given(seed=seeds)
@few
def test_it_is_between_its_relaxation_and_whole_gpus(seed: int) -> None:
    random = np.random.default_rng(seed)
    rates = draw(random, SMALL_A100, 4)
    demands = {service: float(np.round(random.uniform(20, 150), 1)) for service in rates}
    whole = sum(math.ceil(demands[s] / rates[s]["7g.40gb"] - 1e-9) for s in rates)
    problem = document(rates, demands, "A100", gpus=whole, replicas=40)
    solution = optsched.solve(problem, "mig-pack")
    assert solution.status == "optimal" and solution.objective is not None
    # The linear relaxation, written down here a second time
    layouts = layouts_of("A100")
    L, P, S = len(layouts.counts), len(layouts.names), len(rates)
    supply = np.hstack([-layouts.counts.T, *[np.eye(P)] * S])
    cover = np.zeros((S, L + S * P))
    for row, service in enumerate(rates):
        mine = [-rates[service].get(name, 0.0) for name in layouts.names]
        cover[row, L + row * P : L + (row + 1) * P] = mine
    none = [
        (0, 0) if not rates[s].get(name) else (0, None) for s in rates for name in layouts.names
    ]
    relaxed = linprog(
        np.r_[np.ones(L), np.zeros(S * P)],
        np.vstack([supply, cover]),
        np.r_[np.zeros(P), -np.array(list(demands.values()))],
        bounds=[(0, None)] * L + none,
    )
    assert relaxed.fun - 1e-6 <= solution.objective <= whole
    check_slices(solution, "A100")
    # More demand never needs fewer GPUs, and neither do fewer profiles
    service = next(iter(rates))
    more = optsched.solve(
        document(rates, demands | {service: demands[service] * 1.5}, "A100", gpus=64, replicas=60),
        "mig-pack",
    )
    assert more.objective is not None and more.objective >= solution.objective
    extended = {s: mine | {"1g.10gb": mine.get("1g.5gb", 1.0)} for s, mine in rates.items()}
    other = optsched.solve(document(extended, demands, "A100", gpus=whole, replicas=40), "mig-pack")
    assert other.objective is not None and other.objective <= solution.objective


def test_a_service_that_needs_whole_gpus_gets_the_ceiling() -> None:
    problem = document({"s": {"7g.40gb": 3.0}}, {"s": 7.0}, "A100")
    assert optsched.solve(problem, "mig-pack").objective == 3
    # A whole GPU that is not cut counts the same
    for job in problem["jobs"]:
        del job["options"][0]["attributes"]
    solution = optsched.solve(problem, "mig-pack")
    assert solution.objective == 3
    assert {each.layout for each in optsched.slices(solution).slices} == {"whole"}
    assert optsched.verify(problem, solution.to_document()).ok


def test_nothing_runs_without_demands() -> None:
    solution = optsched.solve(document({"s": {"7g.40gb": 3.0}}, {}, "A100"), "mig-pack")
    assert (solution.status, solution.objective) == ("optimal", 0)
    assert len(optsched.slices(solution)) == 0


@given(seed=seeds)
@few
def test_what_changes_cost_is_weighed_against_gpus(seed: int) -> None:
    random = np.random.default_rng(seed)
    rates = draw(random, list(PARTS["A30"]), 1)
    demands = {"s0": float(np.round(random.uniform(5, 60), 1))}
    layouts = layouts_of("A30")
    names = [layouts.words(counts) for counts in layouts.counts]
    old = {name: int(random.integers(0, 3)) for name in names}
    change = float(random.choice([0.1, 0.5, 1.5]))
    best = math.inf
    by_service = [[rates["s0"].get(name, 0.0) for name in layouts.names]]
    for gpus in range(9):
        for chosen in combinations_with_replacement(range(len(names)), gpus):
            supply = layouts.counts[list(chosen)].sum(axis=0).tolist()
            if covers(supply, by_service, [demands["s0"]]):
                n = np.bincount(chosen, minlength=len(names))
                moved = np.abs(n - np.array(list(old.values()))).sum()
                best = min(best, gpus + change * moved)
    problem = document(rates, demands, gpus=8)
    options = {"layouts": {"p": old}, "change": change}
    solution = optsched.solve(problem, "mig-pack", **options)
    assert solution.objective == pytest.approx(best)
    assert optsched.verify(problem, solution.to_document()).ok


def test_a_layout_that_is_not_largest_can_stay() -> None:
    rates = {"s": {"1g.6gb": 10.0, "4g.24gb": 20.0}}
    problem = document(rates, {"s": 10.0})
    solution = optsched.solve(problem, "mig-pack", layouts={"p": {"1g.6gb": 1}}, change=1.0)
    assert solution.objective == 1
    assert solution.schedule is not None and solution.schedule.layouts == {"p": {"1g.6gb": 1}}
    assert [each.slice for each in optsched.slices(solution).slices] == ["1g.6gb@0"]


def test_the_cheapest_pool_is_taken_by_cost() -> None:
    problem = document({"s": {"7g.40gb": 3.0}}, {"s": 6.0}, "A100", cost_per_gpu_hour=3.0)
    cheap = {"name": "t4", "nodes": 1, "gpus_per_node": 8, "cost_per_gpu_hour": 0.5}
    problem["cluster"]["pools"].append(cheap)
    for job in problem["jobs"]:
        job["options"].append({"pool": "t4", "gpus": 1, "throughput": 1.0})
    assert optsched.solve(problem, "mig-pack").objective == 2
    by_cost = optsched.solve(problem, "mig-pack", objective="cost")
    assert by_cost.objective == pytest.approx(3.0)  # six T4
    assert {each.pool for each in optsched.slices(by_cost).slices} == {"t4"}


def test_other_side_constraints_hold_too() -> None:
    problem = document({"s": {"1g.5gb": 10.0, "7g.40gb": 30.0}}, {"s": 60.0}, "A100")
    assert optsched.solve(problem, "mig-pack").objective == 1
    barred = {"kind": "forbidden", "jobs": [f"s-{number}" for number in range(10)], "pools": ["p"]}
    solution = optsched.solve(problem, "mig-pack", constraints=[barred])
    assert solution.objective == 2
    runs = {each.job for each in optsched.slices(solution).slices if each.job}
    assert runs <= {"s-10", "s-11"}


def test_too_much_demand_is_explained() -> None:
    problem = document({"s": {"4g.24gb": 3.0}}, {"s": 30.0}, gpus=2)
    solution = optsched.solve(problem, "mig-pack")
    assert solution.status == "infeasible"
    assert "must make 30 steps/s together (minimum-throughput)" in solution.why_infeasible
    assert "pool p has 2 GPUs" in solution.why_infeasible


def test_a_changed_file_is_found_out() -> None:
    problem = document({"s": {"1g.5gb": 10.0}}, {"s": 60.0}, "A100")
    told = optsched.solve(problem, "mig-pack").to_document()
    assert optsched.verify(problem, told).ok
    for layouts in (
        {"p": {"2x3g.20gb": 1}},
        {"p": {"3g.20gb+4g.20gb": 5}},
        {"q": {"7g.40gb": 1}},
        {},
        None,
    ):
        assert not optsched.verify(problem, told | {"layouts": layouts}).ok


def test_refused_input() -> None:
    problem = document({"s": {"1g.5gb": 10.0}}, {"s": 20.0}, "A100")
    option = problem["jobs"][0]["options"][0]

    def solved(**more: Any) -> optsched.Solution:
        return optsched.solve(problem, "mig-pack", **more)

    with refuses('mig-pack: layouts: found "q", expected one of the pools p', UsageError):
        solved(layouts={"q": {"7g.40gb": 1}})
    for layout, why in (
        ("2x4g.20gb", "a GPU has at most 1 x 4g.20gb, which starts at 0"),
        ("3g.20gb+3g.20gb+1g.5gb", "2 x 3g.20gb and 1 x 1g.5gb take 9 memory slices of 8"),
        ("3g.20gb@2", "3g.20gb cannot start at 2: it starts at 0 or 4"),
    ):
        expected = f"a layout that a GPU can have: {why}"
        with refuses(f'mig-pack: layouts.p: found "{layout}", expected {expected}', UsageError):
            solved(layouts={"p": {layout: 1}})
    option["share"] = 0.5
    with refuses("jobs[0].options[0].share: found 0.5, expected at most 0.125, the part of..."):
        solved()
    option["attributes"] = {"mig": "5g.25gb"}
    with refuses(
        'jobs[0].options[0].attributes.mig: found "5g.25gb", expected one of the profiles...'
    ):
        solved()
    option["attributes"] = {}
    with refuses("jobs[0].options[0].attributes.mig: found nothing, expected a MIG profile..."):
        solved()
    problem["jobs"][0]["options"] = [{"pool": "p", "gpus": 2, "throughput": 1.0}]
    with pytest.raises(UsageError, match=r"counts slices and single GPUs: job s-0 asks for 2 GPUs"):
        solved()


def test_a_gpu_without_profiles_is_refused() -> None:
    problem = document({"s": {"1g.5gb": 10.0}}, {"s": 20.0}, "A100")
    problem["cluster"]["pools"][0]["gpu"] = "V100"
    with refuses(
        'cluster.pools[0].gpu: found "V100", which has no profiles, expected a GPU with MIG...'
    ):
        optsched.solve(problem, "mig-pack")
    # Profiles of the pool itself go before those of the board
    mine = {"profile": "1g.5gb", "compute_slices": 1, "memory_slices": 1, "starts": [0, 1]}
    problem["cluster"]["pools"][0]["partitions"] = [mine]
    for job in problem["jobs"]:
        job["options"][0]["share"] = 0.5
    solution = optsched.solve(problem, "mig-pack")
    assert solution.schedule is not None and solution.schedule.layouts == {"p": {"2x1g.5gb": 1}}


def test_slices_and_placements_are_of_what_they_know() -> None:
    with pytest.raises(UsageError, match=r"max-throughput decides no layouts of GPUs"):
        optsched.slices(optsched.solve("@quickstart", "max-throughput"))
    with pytest.raises(UsageError, match=r"optsched.slices says which slice each job runs in"):
        optsched.place(optsched.solve("@services", "mig-pack"))


def test_the_instance_that_ships() -> None:
    solution = optsched.solve("@services", "mig-pack")
    assert (solution.status, solution.objective) == ("optimal", 5)
    check = optsched.slices(solution)
    assert len(check.to_columns()["gpu"]) == len(check)
    whole = {service: 0.0 for service in ("resnet-50", "bert-large", "gpt-2-xl", "opt-13b")}
    table = solution.instance.to_document()
    for job in table["jobs"]:
        whole[job["workload"]] = job["options"][-1]["throughput"]
    needs = [math.ceil(c["rate"] / whole[c["workload"]]) for c in table["constraints"]]
    assert sum(needs) == 10


@given(seed=seeds)
@few
def test_a_cover_of_whole_replicas_is_the_cheapest_of_all(seed: int) -> None:
    """`cost` with whole jobs and a demand, against all choices."""
    random = np.random.default_rng(seed)
    prices = random.integers(1, 9, 2).astype(float).tolist()
    rates = random.integers(1, 20, (4, 2)).astype(float)
    demand = float(random.integers(1, int(rates.max(axis=1).sum()) + 1))
    pools = [
        {"name": f"p{row}", "nodes": 1, "gpus_per_node": 4, "cost_per_gpu_hour": price}
        for row, price in enumerate(prices)
    ]
    jobs = [
        {"id": f"r{row}", "workload": "w", "throughput": dict(zip(("p0", "p1"), mine, strict=True))}
        for row, mine in enumerate(rates.tolist())
    ]
    floor = {"kind": "minimum-throughput", "workload": "w", "rate": demand}
    best = min(
        (
            sum(prices[pool] for pool in where if pool < 2)
            for where in np.ndindex(3, 3, 3, 3)
            if sum(rates[job, pool] for job, pool in enumerate(where) if pool < 2) >= demand
        ),
        default=None,
    )
    problem = instance_document(pools, jobs)
    solution = optsched.solve(problem, "cost", integral=True, constraints=[floor])
    assert solution.objective == pytest.approx(best)
    relaxed = optsched.solve(problem, "cost", constraints=[floor])
    assert relaxed.objective is not None and relaxed.objective <= solution.objective + 1e-9
    assert sum(relaxed.throughput.values()) >= demand * (1 - 1e-6)


def test_a_demand_that_nobody_can_carry_is_infeasible() -> None:
    problem = instance_document({"v": 4}, [{"id": "a", "workload": "w", "throughput": {"v": 0.0}}])
    floor = {"kind": "minimum-throughput", "jobs": ["a"], "rate": 1.0}
    solution = optsched.solve(problem, "max-throughput", constraints=[floor])
    assert solution.status == "infeasible"
    assert "but none of them can run" in solution.why_infeasible
    with refuses("rate", UsageError):
        optsched.solve(problem, "max-throughput", constraints=[floor | {"rate": 0.0}])
