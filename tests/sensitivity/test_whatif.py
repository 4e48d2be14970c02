"""Other capacities: both readings, prices as bounds, nodes that come and go, and how far prices reach."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from optsched.errors import SolverUnavailable, UsageError

# Private names: the held program that answers are computed with
from optsched.instance.resize import resized
from optsched.registry import load_solver
from optsched.sensitivity import Change, whatif
from optsched.sensitivity.held import HeldProgram, single_program
from optsched.solution import Solution
from optsched.solving import Engine

pytestmark = pytest.mark.property

LINEAR = ["max-min-fairness", "makespan", "max-throughput"]


def random_instance(seed: int, jobs: int = 9, pools: int = 3) -> optsched.Instance:
    random = np.random.default_rng(seed)
    return optsched.Instance.from_arrays(
        pools={f"p{row}": int(random.integers(1, 6)) for row in range(pools)},
        throughput=random.uniform(0.2, 3.0, (jobs, pools)),
        weight=random.uniform(0.5, 2.0, jobs),
        steps=random.uniform(100, 5000, jobs),
    )


def held_value(solution: Solution, capacity: np.ndarray) -> float:
    """The program's optimum with other capacities, by a session of its own: nothing is shared with the tools."""
    assert solution.allocation is not None
    formulation = optsched.api.make_formulation(
        solution.formulation, solution.options, solution.constraints
    )
    program = single_program(formulation, solution.allocation.classes)
    arrays = program.to_linear().arrays
    from scipy.optimize import linprog

    upper = arrays.row_upper.copy()
    upper[arrays.row_block("capacity").slice] = capacity
    A, low = arrays.A.toarray(), arrays.row_lower
    rows = np.vstack([A[np.isfinite(upper)], -A[np.isfinite(low)]])
    sides = np.concatenate([upper[np.isfinite(upper)], -low[np.isfinite(low)]])
    found = linprog(
        -arrays.cost,
        A_ub=rows,
        b_ub=sides,
        bounds=list(zip(arrays.lower, arrays.upper, strict=True)),
    )
    return float(-found.fun) if found.status == 0 else -np.inf


# --- what if ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", LINEAR)
def test_the_recompiled_cluster_is_the_cluster_written_anew(formulation: str) -> None:
    document = optsched.load("@quickstart").to_document()
    document["cluster"]["pools"][0]["nodes"] = 4
    document["cluster"]["pools"][2]["nodes"] = 1
    found = optsched.whatif("@quickstart", formulation, add={"v100": 8, "k80": -2})
    (change,) = found.changes
    expected = optsched.solve(optsched.Instance.from_document(document), formulation)
    assert change.solution.objective == pytest.approx(expected.objective, rel=1e-9)
    assert found.base.objective == pytest.approx(
        optsched.solve("@quickstart", formulation).objective, rel=1e-12
    )
    assert change.solution.instance.name == "quickstart with v100 +8, k80 -2"


@pytest.mark.parametrize("formulation", LINEAR)
def test_the_held_optimum_is_that_of_the_same_program_with_another_right_side(
    formulation: str,
) -> None:
    found = optsched.whatif("@quickstart", formulation, add={"v100": 3, "k80": -2}, each=True)
    assert [dict(change.add) for change in found.changes] == [{"v100": 3}, {"k80": -2}]
    base = found.base
    program = optsched.api.make_formulation(formulation).build(base.allocation.classes)  # type: ignore[union-attr]
    for change, capacity in zip(found.changes, ([11, 4, 4], [8, 4, 2]), strict=True):
        assert (
            change.held is not None
            and change.held.certificate.ok
            and change.held.status == "optimal"
        )
        value = program.units.objective(held_value(base, np.array(capacity, float)))
        assert change.held.objective == pytest.approx(value, rel=1e-8)


def test_one_session_does_all_held_programs() -> None:
    pools = {"v100": 3.0, "p100": 2.0, "k80": -2.0}
    found = optsched.whatif("@quickstart", add=pools, each=True)
    assert (found.runs, found.rebuilt) == (3, ())
    rebuilding = optsched.whatif("@quickstart", add=pools, each=True, solver="clarabel")
    assert rebuilding.runs == 3
    assert rebuilding.rebuilt == ("row bounds",)
    for one, other in zip(found.changes, rebuilding.changes, strict=True):
        assert one.held is not None and other.held is not None
        assert one.held.objective == pytest.approx(other.held.objective, rel=1e-6)


@given(
    st.integers(0, 10_000),
    st.sampled_from(LINEAR),
    st.lists(st.integers(-1, 4), min_size=3, max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_prices_bound_what_held_programs_can_gain(
    seed: int, formulation: str, amounts: list[int]
) -> None:
    add = {f"p{row}": amount for row, amount in enumerate(amounts) if amount}
    if not add:
        return
    found = whatif(random_instance(seed), formulation, add=add)
    (change,) = found.changes
    gain, predicted = found.difference(change.held), change.predicted
    if (
        change.held is None
        or change.held.objective is None
        or not np.isfinite(change.held.objective)
    ):
        return
    assert gain is not None and predicted is not None and change.limit is not None
    better = -1 if found.base.sense == "min" else 1
    size = 1e-7 * abs(found.base.objective or 0.0)
    assert better * gain <= better * predicted + size
    assert change.limit <= 0 or better * change.held.objective <= better * change.limit + size
    if formulation != "makespan":
        assert change.limit == pytest.approx((found.base.objective or 0.0) + predicted)


def test_changes_in_other_processes_are_the_same() -> None:
    add = {"v100": 4, "p100": 4, "k80": 4}
    told: list[Any] = []
    alone, others = (
        optsched.whatif(
            "@quickstart", "max-throughput", add=add, each=True, processes=n, on_change=told.append
        )
        for n in (1, 3)
    )
    assert [change.solution.objective for change in others.changes] == [
        change.solution.objective for change in alone.changes
    ]
    assert told[:3] == sorted(told[3:], key=told.index)
    with pytest.raises(UsageError, match="what is to be sent to other processes cannot be"):
        optsched.whatif(
            "@quickstart",
            "max-throughput",
            add=add,
            each=True,
            processes=2,
            extend=lambda program, variables, classes: None,
        )


def test_normalisers_move_with_the_cluster_unless_they_are_held() -> None:
    """Many slow GPUs more: everybody's proportional share falls, and more than prices say is had by that yardstick."""
    found = optsched.whatif("@quickstart", "max-min-fairness", add={"k80": 40})
    (change,) = found.changes
    held, recompiled = found.difference(change.held), found.difference(change.solution)
    assert held is not None and recompiled is not None and change.predicted is not None
    assert 0 < held < 0.2 * change.predicted < change.predicted < recompiled
    throughput = optsched.whatif(
        "@quickstart", "max-throughput", add={"k80": 40}
    )  # has no normaliser
    assert throughput.difference(throughput.changes[0].solution) == pytest.approx(
        throughput.difference(throughput.changes[0].held)
    )


@pytest.mark.parametrize(
    ("formulation", "words"),
    [
        ("isolated", "isolated is a rule or is solved in several stages"),
        ("lease", "lease decides what runs when"),
    ],
)
def test_what_is_no_single_program_is_recompiled_only(formulation: str, words: str) -> None:
    found = optsched.whatif("@quickstart", formulation, add={"v100": 4})
    (change,) = found.changes
    assert (change.held, change.predicted, change.limit) == (None, None, None)
    assert found.not_held.startswith(words)
    assert found.difference(change.solution) is not None


def test_whole_jobs_are_held_without_prices_and_concave_utilities_with() -> None:
    whole = optsched.whatif(
        "@quickstart", "max-throughput", add={"v100": 2}, options={"integral": True}
    )
    assert whole.changes[0].held is not None and whole.changes[0].predicted is None
    assert whole.difference(whole.changes[0].held) == pytest.approx(
        whole.difference(whole.changes[0].solution)
    )
    nash = optsched.whatif("@quickstart", "proportional-fairness", add={"v100": 2})
    gain, predicted = nash.difference(nash.changes[0].held), nash.changes[0].predicted
    assert gain is not None and predicted is not None and 0 < gain <= predicted
    assert nash.rebuilt == (
        "solved from scratch, as a utility that is not linear cannot be changed in place",
    )


def test_an_infeasible_instance_may_become_feasible_and_back() -> None:
    found = optsched.whatif("@infeasible", "makespan", add={"a100": 8})
    assert (found.base.status, found.changes[0].solution.status) == ("infeasible", "optimal")
    assert found.changes[0].held is not None and found.changes[0].held.status == "optimal"
    assert found.difference(found.changes[0].solution) is found.changes[0].predicted is None
    larger = resized(optsched.load("@infeasible"), {"a100": 8})
    back = optsched.whatif(larger, "makespan", add={"a100": -8})
    assert back.changes[0].held is not None and back.changes[0].held.status == "infeasible"
    assert back.changes[0].held.conflicts and back.rebuilt == (
        "solved anew, as the session ended with infeasible",
    )


def test_a_researcher_s_own_rows_stay() -> None:
    def quota(lp: Any, variables: Any, C: Any) -> None:
        lp.constrain(
            np.where(C.pool == 0, C.gpus, 0.0)[np.newaxis, :] @ variables["x"] <= 2.0, name="quota"
        )

    found = optsched.whatif("@quickstart", "max-throughput", add={"v100": 4}, extend=quota)
    assert found.difference(found.changes[0].held) == pytest.approx(0.0, abs=1e-9)
    assert found.difference(found.changes[0].solution) == pytest.approx(0.0, abs=1e-9)


def test_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    found = optsched.whatif("@quickstart", "makespan", add={"v100": 8})
    document = found.to_document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert set(document) == {
        "format", "instance", "formulation", "options", "constraints", "sense", "objective_words", "now", "changes",
        "not_held", "session",
    }  # fmt: skip
    (change,) = document["changes"]
    assert set(change) == {
        "add", "then", "difference", "held", "held_difference", "predicted", "limit"}  # fmt: skip
    assert change["then"]["capacity"] == {"v100": 16.0, "p100": 4.0, "k80": 4.0}
    assert change["predicted"] == pytest.approx(-8 * found.base.prices["v100"])
    assert isinstance(found.changes[0], Change)


@pytest.mark.parametrize(
    ("add", "words"),
    [
        ({}, "add: found nothing, expected the name of a pool or resource, and an amount"),
        ({"v10": 1}, "add: found 'v10', expected one of v100, p100, k80"),
        ({"v100": 0.5}, "add v100: found 0.5, expected a whole number of GPUs"),
        ({"v100": float("inf")}, "add v100: found inf, expected a finite number"),
        ({"k80": -5}, "add k80: found -5, expected at least -4, as there are 4 usable GPUs"),
        (
            {"k80.cpu": 5},
            "add k80.cpu: found a usable node of k80 that does not state its cpu",
        ),
        (
            {"k80": 2_000_000_000},
            "add k80: found 2,000,000,000, expected at most 10 million nodes and 100 million GPUs...",
        ),
    ],
)
def test_wrong_amounts(add: dict[str, float], words: str) -> None:
    with refuses(words, UsageError):
        optsched.whatif("@quickstart", add=add)


def test_wrong_names_are_refused_before_anything_is_read() -> None:
    with refuses("formulation: found 'makespam'", UsageError):
        optsched.whatif("no/such/file.json", "makespam", add={"v100": 1})
    with pytest.raises(SolverUnavailable):
        optsched.whatif("@quickstart", add={"v100": 1}, solver="gurobi9")


# --- nodes that come and go ---------------------------------------------------------------------------------------

LISTED: dict[str, Any] = {
    "format": "optsched-instance/1", "name": "listed",
    "cluster": {
        "pools": [
            {"name": "a", "nodes": [{"name": "n1", "gpus": 2, "cpus": 8, "memory": 64},
                                    {"name": "n2", "gpus": 4, "cpus": 16, "memory": 128},
                                    {"name": "n3", "gpus": 4, "cpus": 16, "memory": 128},
                                    {"name": "n4", "gpus": 4, "cpus": 16, "memory": 128, "state": "down"}]},
            {"name": "b", "nodes": 3, "gpus_per_node": 2},
        ],
        "resources": [{"name": "licences", "capacity": 2}, {"name": "disk", "capacity": 5, "nodes": ["n3"]}],
    },
    "jobs": [
        {"id": "j", "gpus": 1, "throughput": {"a": 1.0, "b": 0.5}, "running": {"pool": "a", "gpus": ["n3/3"]}},
        {"id": "k", "gpus": 1, "throughput": {"a": 1.0, "b": 0.5}, "running": {"pool": "b", "gpus": ["b-0/1"]}},
    ],
}  # fmt: skip


def nodes(instance: optsched.Instance, pool: str) -> list[tuple[str, int]]:
    chosen = instance.cluster.pools[instance.cluster.pool_index[pool]]
    return [(chosen.node_name(row), int(gpus)) for row, gpus in enumerate(chosen.node_gpus)]


@pytest.fixture
def listed() -> optsched.Instance:
    return optsched.Instance.from_document(copy.deepcopy(LISTED))


def test_added_gpus_form_nodes_of_the_commonest_size_and_a_smaller_one(
    listed: optsched.Instance,
) -> None:
    larger = resized(listed, {"a": 9, "b": 3})
    assert nodes(larger, "a")[4:] == [("a-4", 4), ("a-5", 4), ("a-6", 1)]
    assert nodes(larger, "b") == [("b-0", 2), ("b-1", 2), ("b-2", 2), ("b-3", 2), ("b-4", 1)]
    capacities = larger.cluster.capacities(0.0)
    assert (capacities["a"], capacities["a.cpu"], capacities["a.memory"]) == (
        19,
        40 + 36,
        320 + 288,
    )
    assert optsched.Instance.from_document(larger.to_document()).sha256 == larger.sha256


def test_removed_gpus_are_the_last_of_usable_nodes(listed: optsched.Instance) -> None:
    smaller = resized(listed, {"a": -3, "b": -3})
    assert nodes(smaller, "a") == [("n1", 2), ("n2", 4), ("n3", 1), ("n4", 4)]
    assert nodes(smaller, "b") == [("b-0", 2), ("b-1", 1)]
    assert smaller.cluster.capacities(0.0)["a.cpu"] == 8 + 16 + 4
    assert set(smaller.jobs_table.running) == {1}  # j lost its GPU
    assert resized(smaller, {"a": 3}).cluster.capacities(0.0)["a"] == 10
    nothing = resized(resized(listed, {"b": -6}), {"b": 5})
    assert nodes(nothing, "b") == [("b-0", 5)]
    for made in (smaller, nothing):
        assert optsched.Instance.from_document(made.to_document()).sha256 == made.sha256


@pytest.mark.parametrize(("names", "gone"), [(["n0"], 2), (["a-0", "n1"], 2), (["n0", "a-1"], 4)])
def test_a_smaller_cluster_is_what_its_document_says(names: list[str], gone: int) -> None:
    """Nodes that are left may be none at all, or called like those that nobody named."""
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": "a", "nodes": [{"name": name, "gpus": 2} for name in names]}]
        },
        "jobs": [],
    }
    smaller = resized(optsched.Instance.from_document(document), {"a": -gone})
    back = optsched.Instance.from_document(smaller.to_document())
    assert back.sha256 == smaller.sha256
    assert back.cluster.pools[0].node_names == smaller.cluster.pools[0].node_names


def test_a_resource_keeps_its_nodes_or_is_refused(listed: optsched.Instance) -> None:
    assert resized(listed, {"a": -3}).cluster.resources[1].nodes == ("n3",)
    with refuses("add a: found no node of the resource disk left", UsageError):
        resized(listed, {"a": -4})


def test_cpus_memory_and_resources(listed: optsched.Instance) -> None:
    changed = resized(listed, {"a.cpu": -20, "a.memory": 320, "licences": 1.5})
    pool = changed.cluster.pools[0]
    assert pool.node_cpus.tolist() == [4, 8, 8, 16]
    assert pool.node_memory.tolist() == [128, 256, 256, 128]
    assert changed.cluster.resources[0].capacity == 3.5
    with refuses("add licences: found -3, expected at least -2, as there are 2", UsageError):
        resized(listed, {"licences": -3})


def test_new_names_are_free(listed: optsched.Instance) -> None:
    document = copy.deepcopy(LISTED)
    document["cluster"]["pools"][0]["nodes"][0]["name"] = "b-3"
    made = resized(optsched.Instance.from_document(document), {"b": 4})
    assert [name for name, _ in nodes(made, "b")] == ["b-0", "b-1", "b-2", "b-4", "b-5"]
    assert optsched.Instance.from_document(made.to_document()).sha256 == made.sha256


@given(st.integers(-10, 30), st.integers(-6, 30))
@settings(max_examples=40, deadline=None)
def test_capacities_are_what_was_asked_for(a: int, b: int) -> None:
    document = copy.deepcopy(LISTED)
    del document["cluster"]["resources"][1]
    instance = optsched.Instance.from_document(document)
    made = resized(instance, {"a": a, "b": b})
    assert made.cluster.gpus(0.0).tolist() == [10 + a, 6 + b]
    assert all(gpus > 0 for pool in "ab" for _, gpus in nodes(made, pool))
    assert instance.cluster.gpus(0.0).tolist() == [10, 6]


def test_jobs_that_can_run_no_longer_are_told() -> None:
    document = {
        "format": "optsched-instance/1", "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 4}]},
        "jobs": [{"id": "wide", "gpus": 4, "throughput": {"p": 1.0}}, {"id": "a", "throughput": {"p": 1.0}}],
    }  # fmt: skip
    found = optsched.whatif(
        optsched.Instance.from_document(document), "max-throughput", add={"p": -1}
    )
    (change,) = found.changes
    assert [job for job, _ in change.solution.unplaced] == ["wide"]
    assert change.held is not None and not change.held.unplaced


def test_the_budget_of_the_held_program_is_one() -> None:
    solution = optsched.solve("@quickstart", "max-throughput")
    assert solution.allocation is not None
    formulation = optsched.api.make_formulation("max-throughput")
    held = HeldProgram(
        formulation, single_program(formulation, solution.allocation.classes), Engine(load_solver)
    )
    outcomes = [
        held.run(held.with_capacity(held.classes.capacity + more)) for more in (0.0, 1.0, -1.0, 0.0)
    ]
    assert outcomes[0].value == pytest.approx(outcomes[3].value, rel=1e-12)
    assert (
        held.runs == 4
        and held.rebuilt == ()
        and held.engine.reason == "linear program whose right sides change"
    )
