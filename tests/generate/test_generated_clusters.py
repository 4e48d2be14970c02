"""Generated clusters: capacity as scarce as asked for, rows as different as asked for, the same bytes every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from optsched.candidates import Candidates
from optsched.errors import UsageError

# Private names: the draws and steps that generators are made of
from optsched.generate import cluster as cluster_module
from optsched.generate import generate
from optsched.generate.generator import significant
from optsched.generate.load import GpuDemand, balanced_prices, highest, level_bound
from optsched.instance import Instance, instance_bytes, topology_graph

pytestmark = pytest.mark.property

CASES: dict[str, dict[str, Any]] = {
    "plain": {"jobs": 150},
    "scarce": {"jobs": 300, "load": 6},
    "one pool": {"jobs": 60, "pools": 1},
    "sixteen pools": {"jobs": 250, "pools": 16},
    "repeated": {"jobs": 300, "rows": "repeated", "kinds": 12},
    "elastic": {"jobs": 150, "elastic": 0.5, "gangs": (0.1, 0.1, 0.1)},
    "elastic kinds": {"jobs": 150, "elastic": 0.5, "rows": "repeated", "kinds": 20},
    "pairs of jobs": {"jobs": 150, "colocation": 1.0},
    "pairs of kinds": {"jobs": 150, "colocation": 0.5, "rows": "repeated", "kinds": 12},
    "mixed nodes": {"jobs": 400, "topology": "mixed-nodes", "unavailable": 0.2},
}


def made(seed: int = 1, **options: Any) -> Instance:
    return generate("cluster", seed=seed, **options).instance


def program(instance: Instance) -> Any:
    candidates: Candidates = optsched.compile(instance)
    formulation = optsched.api.make_formulation("max-min-fairness", {}, [])
    return formulation.program(formulation.classes(candidates))


# --- scarcity ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_capacity_is_as_scarce_as_asked_for(case: str, seed: int) -> None:
    """Solved without the generator's own numbers: the level over that of the job that reaches least alone."""
    options = CASES[case]
    instance = made(seed, **options)
    solution = optsched.solve(instance, "max-min-fairness")
    assert solution.status == "optimal" and not solution.unplaced
    ratio = solution.objective / program(instance).highest_level.min()
    load = options.get("load", 1.5)
    assert ratio <= 1 / load + 1e-6
    assert (
        ratio > 0.65 / load
    )  # not much scarcer than asked for; what is missing is rounding to whole nodes


def test_the_note_says_what_solving_says() -> None:
    for options in (CASES["plain"], CASES["elastic kinds"]):
        result = generate("cluster", **options)
        (note,) = result.notes()
        ratio = (
            optsched.solve(result.instance).objective / program(result.instance).highest_level.min()
        )
        assert note.startswith(f"max-min fairness: t*/tmax {ratio:.3f} (solved; at most 0.")


def test_the_note_of_many_jobs_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "SOLVED", 100)
    result = generate("cluster", jobs=150)
    (note,) = result.notes()
    ratio = optsched.solve(result.instance).objective / program(result.instance).highest_level.min()
    assert note.startswith("max-min fairness: t*/tmax at most 0.")
    assert ratio <= float(note.split("at most ")[1].split()[0]) + 5e-4


@given(st.integers(0, 10**6), st.integers(12, 80), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_small_clusters_are_scarce_and_have_room_for_every_gang(
    seed: int, jobs: int, pools: int
) -> None:
    result = generate("cluster", jobs=jobs, pools=pools, gangs=(0.2, 0.2, 0.4), load=1.2, seed=seed)
    table, W = result.instance.jobs_table, result.instance.cluster.gpus(result.instance.now)
    widest = int(table.gpus_max.max())
    assert widest <= W.max() and not optsched.compile(result.instance).absence.any()
    notes = result.notes()
    assert (
        float(notes[-1].split("at most ")[1].split()[0]) <= 1 / 1.2 + 5e-4
    )  # rounding to whole nodes is counted
    assert len(notes) == (1 if widest == 8 else 2)
    assert (
        widest == 8
        or notes[0] == f"gangs have {widest} GPUs at most, as no pool has room for wider ones"
    )


def test_plenty_is_possible_too() -> None:
    result = generate("cluster", jobs=100, load=0.1)
    assert result.notes()[0].startswith("max-min fairness: t*/tmax 1.000 (solved; at most 1.000")


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_any_prices_bound_the_level(seed: int, pools: int, jobs: int) -> None:
    """Against the linear program over fractions of time, with zero rates and gangs, at random prices."""
    from scipy.optimize import linprog

    random = np.random.default_rng(seed)
    T = np.exp(random.normal(size=(jobs, pools))) * (random.random((jobs, pools)) < 0.8)
    T[T.sum(axis=1) == 0, 0] = 1.0
    s, w, W = (
        random.choice([1, 2, 4], jobs),
        random.choice([1.0, 2.0], jobs),
        random.integers(4, 20, pools) * 1.0,
    )
    demand = GpuDemand(T, T, s, w, np.ones(jobs))
    a = T * (s / w / (T @ W / W.sum()))[:, np.newaxis]
    level = np.hstack([-np.kron(np.eye(jobs), np.ones(pools)) * a.ravel(), np.ones((jobs, 1))])
    time = np.hstack([np.kron(np.eye(jobs), np.ones(pools)), np.zeros((jobs, 1))])
    use = np.hstack([np.kron(s, np.eye(pools)), np.zeros((pools, 1))])
    right = np.concatenate([np.zeros(jobs), np.ones(jobs), W])
    cost = np.append(np.zeros(jobs * pools), -1.0)
    t = linprog(cost, A_ub=np.vstack([level, time, use]), b_ub=right).x[-1]
    assert t <= highest(demand, W) * (1 + 1e-9)
    for prices in (np.ones(pools), random.random(pools) + 1e-3, balanced_prices(demand, W)):
        assert t <= level_bound(demand, W, prices) * (1 + 1e-9)
    assert level_bound(demand, W, balanced_prices(demand, W)) <= level_bound(
        demand, W, np.ones(pools)
    ) * (1 + 1e-9)


# --- rows ----------------------------------------------------------------------------------------------------------


def test_distinct_means_distinct() -> None:
    instance = made(jobs=3000, pools=2, elastic=0.2)
    table = instance.jobs_table
    rows = {
        (int(table.gpus_max[row]), str(instance.rates.document(int(table.rates[row]))))
        for row in range(3000)
    }
    assert len(rows) == 3000
    assert len(optsched.compile(instance).kinds) == 3000


def test_equal_rows_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.generate import rows

    monkeypatch.setattr(rows, "DIGITS", 4)  # so coarse that equal draws are certain
    instance = made(jobs=1500, pools=1, gangs=(0.0, 0.0, 0.0))
    assert len(np.unique(instance.rates.rate)) == 1500
    monkeypatch.setattr(rows, "DIGITS", 1)
    with pytest.raises(RuntimeError, match="1500 rows could not be made different"):
        made(jobs=1500, pools=1)


@pytest.mark.parametrize("elastic", [0.0, 0.4])
def test_repeated_rows_are_as_many_as_kinds(elastic: float) -> None:
    instance = made(jobs=2000, rows="repeated", kinds=37, elastic=elastic)
    assert len(optsched.compile(instance).kinds) == 37
    assert set(instance.jobs_table.workload.tolist()) == set(range(37))
    assert len({str(instance.rates.document(kind)) for kind in range(37)}) == 37


def test_significant_digits() -> None:
    values = np.array([0.0, 123456.789, 0.000123456789, 9.9999, 1e20 / 3])
    assert significant(values, 4).tolist() == [0.0, 123500.0, 0.0001235, 10.0, 3.333e19]
    random = np.exp(np.random.default_rng(1).normal(scale=9, size=2000))
    assert significant(random, 9).tolist() == [float(f"{value:.8e}") for value in random.tolist()]


# --- options -------------------------------------------------------------------------------------------------------


def test_sizes_and_shares() -> None:
    instance = made(
        jobs=20_000,
        elastic=0.25,
        gangs=(0.2, 0.3, 0.1),
        weights=(0.3, 0.2),
        deadlines=0.4,
        tenants=4,
    )
    table = instance.jobs_table
    elastic = table.levels >= 0
    assert table.level_lists == ((1, 2, 4, 8),)
    assert elastic.mean() == pytest.approx(0.25, abs=0.015)
    for gang, share in ((1, 0.4), (2, 0.2), (4, 0.3), (8, 0.1)):
        assert (table.gpus_max[~elastic] == gang).mean() == pytest.approx(share, abs=0.02)
    for weight, share in ((1, 0.5), (2, 0.3), (4, 0.2)):
        assert (table.weight == weight).mean() == pytest.approx(share, abs=0.02)
    assert np.isfinite(table.deadline).mean() == pytest.approx(0.4, abs=0.02)
    counts = np.bincount(table.tenant)
    assert [tenant.name for tenant in instance.tenants] == ["t0", "t1", "t2", "t3"]
    assert counts / counts[0] == pytest.approx(1 / np.arange(1, 5), abs=0.05)
    assert (np.diff(table.arrival) >= 0).all() and (table.arrival <= instance.now).all()


def fastest(instance: Instance) -> np.ndarray:
    table = instance.jobs_table
    best = np.zeros(len(instance.rates))
    np.maximum.at(best, instance.rates.profile, instance.rates.rate)
    return best[table.rates]


@pytest.mark.parametrize(
    ("options", "tail"),
    [
        ({"durations": "lognormal", "sigma": 0.5}, np.exp(0.5 * 1.6449)),
        ({"durations": "lognormal"}, np.exp(1.2 * 1.6449)),
        ({"durations": "pareto"}, 10 ** (1 / 1.5)),
        ({"durations": "pareto", "shape": 4.0}, 10 ** (1 / 4)),
    ],
)
def test_durations_have_the_median_and_the_tail_asked_for(
    options: dict[str, Any], tail: float
) -> None:
    """``tail``: the 95 % quantile over the median, from the formula of the distribution."""
    instance = made(jobs=20_000, median=7, **options)
    hours = instance.jobs_table.steps / fastest(instance) / 3600
    assert np.median(hours) == pytest.approx(7, rel=0.05)
    assert np.quantile(hours, 0.95) / np.median(hours) == pytest.approx(tail, rel=0.06)


def test_slack_is_time_over_the_fastest() -> None:
    instance = made(jobs=500, deadlines=1.0, slack=2.5)
    time = instance.jobs_table.deadline - instance.now
    assert time == pytest.approx(
        2.5 * instance.jobs_table.steps / fastest(instance), abs=2, rel=1e-3
    )


@pytest.mark.unit
@pytest.mark.parametrize("rows", ["distinct", "repeated"])
def test_pairs_slow_each_other_down(rows: str) -> None:
    kinds = {"kinds": 10} if rows == "repeated" else {}
    instance = made(jobs=200, rows=rows, **kinds, colocation=1.0, gangs=(0.2, 0.0, 0.0))
    table, rates = instance.jobs_table, instance.rates
    if rows == "distinct":
        single = int((table.gpus_max == 1).sum())
        assert len({entry.jobs for entry in instance.colocation}) == pytest.approx(
            single / 2, abs=2
        )
        members = [table.rates[list(entry.jobs)] for entry in instance.colocation]
        assert len({job for entry in instance.colocation for job in entry.jobs}) > 0.9 * single
    else:
        members = [
            [instance.workloads[row].rates for row in entry.workloads]
            for entry in instance.colocation
        ]
    assert instance.colocation
    for entry, profiles in zip(instance.colocation, members, strict=True):
        name = instance.cluster.pools[entry.pool].name
        for profile, rate in zip(profiles, entry.throughput, strict=True):
            alone = rates.document(int(profile))[name]
            assert 0.3 < rate / (alone["1"] if isinstance(alone, dict) else alone) < 0.92


@pytest.mark.parametrize("topology", ["tree", "racks", "mixed-nodes"])
def test_networks(topology: str) -> None:
    instance = made(jobs=900, load=1.2, topology=topology, unavailable=0.1)
    graph = topology_graph(instance.cluster)
    nodes = {
        pool.node_name(row): pool
        for pool in instance.cluster.pools
        for row in range(len(pool.node_gpus))
    }
    assert {name for name, data in graph.nodes(data=True) if data["kind"] == "node"} == set(nodes)
    assert all(data["bandwidth"] > 0 for *_, data in graph.edges(data=True))
    for name, pool in nodes.items():
        assert graph.nodes[name]["pool"] == pool.name
        (leaf,) = graph.neighbors(name)
        hosts = [other for other in graph.neighbors(leaf) if other in nodes]
        spines = [other for other in graph.neighbors(leaf) if other not in nodes]
        assert len(spines) == (1 if topology == "tree" else 2)
        assert topology == "tree" or len(hosts) <= 8
        down = sum(graph.edges[leaf, host]["bandwidth"] for host in hosts)
        assert sum(graph.edges[leaf, spine]["bandwidth"] for spine in spines) == pytest.approx(
            down / 2
        )
    states = np.concatenate([pool.node_state for pool in instance.cluster.pools])
    assert 0.05 < (states != 0).mean() < 0.15
    assert set(states.tolist()) == {0, 1, 2}  # up, drained, down
    mixed = [len(np.unique(pool.node_gpus)) > 1 for pool in instance.cluster.pools]
    assert any(mixed) == (topology == "mixed-nodes")


# --- determinism and refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_same_seed_same_bytes(case: str) -> None:
    options = CASES[case]
    first = instance_bytes(made(3, **options), "npz")
    assert instance_bytes(made(3, **options), "npz") == first
    assert instance_bytes(made(4, **options), "npz") != first


def test_json_and_npz_say_the_same() -> None:
    for case in ("elastic", "pairs of kinds", "mixed nodes"):
        instance = made(**CASES[case])
        assert Instance.from_document(instance.to_document()).sha256 == instance.sha256


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (
            {"jobs": 10, "load": 50},
            "load: found 50, but 4 pools of a node each are too many GPUs for 10 jobs, expected a smaller one...",
        ),
        ({"jobs": 5, "rows": "repeated"}, "kinds: found 100, expected at most one per job, 5"),
        ({"kinds": 3}, "kinds: found 3, expected none unless rows is repeated"),
        ({"shape": 3}, "shape: found 3.0, expected none unless durations is pareto"),
        (
            {"sigma": 1, "durations": "pareto"},
            "sigma: found 1.0, expected none unless durations is lognormal",
        ),
        ({"slack": 2}, "slack: found 2.0, expected none unless deadlines is above 0"),
        ({"jobs": 160_000, "colocation": 1}, "colocation: found 1, up to ..."),
        (
            {"gangs": (0.5, 0.6, 0)},
            "gangs: found [0.5, 0.6, 0.0], expected shares that add up to at most 1",
        ),
        (
            {"weights": (0.5, 0.6)},
            "weights: found [0.5, 0.6], expected shares that add up to at most 1",
        ),
        (
            {"jbos": 4},
            "jbos: found an unknown key 'jbos', expected one of the format's keys (did you mean jobs?)",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(options: dict[str, Any], refusal: str) -> None:
    with refuses(refusal, UsageError):
        made(**options)


def test_the_sentence_of_an_option_that_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        made(kinds=3)
    assert str(error.value) == "kinds: found 3, expected none unless rows is repeated"


def test_a_generator_that_there_is_not() -> None:
    with refuses("generator: found 'clutser', expected one of cluster, unrelated...", UsageError):
        generate("clutser")
