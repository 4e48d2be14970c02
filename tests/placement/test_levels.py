"""Racks: rates, programs, placements and rounds keep gangs within the group that their rate is for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from refusals import refuses

import optsched
from optsched.instance import instance_bytes
from optsched.placement import check_placement
from optsched.rounds import RoundPolicy

pytestmark = pytest.mark.unit

NODES = [f"v-{node}" for node in range(6)]
RACKS = {"rack": {"r0": NODES[:3], "r1": NODES[3:]}}
RATES = {"8": {"rack": 15.85, "cluster": 2.1}}


def document(jobs: int = 3, **cluster: Any) -> dict[str, Any]:
    """Gangs of 8 GPUs on two racks of three nodes of 4."""
    pools = [{"name": "v", "nodes": 6, "gpus_per_node": 4}]
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": pools, "levels": RACKS} | cluster,
        "workloads": {"w": {"throughput": {"v": RATES}}},
        "jobs": [
            {"id": f"j{row}", "workload": "w", "gpus": 8, "steps": 1e6} for row in range(jobs)
        ],
    }


def instance(jobs: int = 3, **cluster: Any) -> optsched.Instance:
    return optsched.load(document(jobs, **cluster))


def unlevelled(**pool: int) -> dict[str, Any]:
    """One pool without levels, and no job yet."""
    cluster = {"pools": [{"name": "v", **pool}]}
    return {"format": "optsched-instance/1", "cluster": cluster, "jobs": []}


def test_three_gangs_get_what_two_racks_give() -> None:
    promised = optsched.solve(instance(), "max-throughput", integral=True)
    assert promised.objective == pytest.approx(3 * 15.85)
    assert len(optsched.place(promised).placement.refused) == 1
    solution = optsched.solve(
        instance(), "max-throughput", integral=True, constraints=["placeable"]
    )
    assert solution.objective == pytest.approx(2 * 15.85 + 2.1)
    assert not solution.placement.refused
    assert optsched.verify(instance(), json.loads(json.dumps(solution.to_document()))).ok


def test_fractions_of_time_know_racks_as_well() -> None:
    free = optsched.solve(instance(), "max-min-fairness")
    kept = optsched.solve(instance(), "max-min-fairness", constraints=["placeable"])
    # Each has two thirds of the time in a rack, and the rest across racks.
    assert kept.objective / free.objective == pytest.approx((2 * 15.85 + 2.1) / (3 * 15.85))
    total = optsched.solve(instance(), "max-throughput", constraints=["placeable"])
    assert total.objective == pytest.approx(2 * 15.85 + 2.1)
    assert total.certificate.proof == "dual"


def test_three_gangs_on_two_nodes() -> None:
    given = unlevelled(nodes=2, gpus_per_node=4)
    gang = {"gpus": 3, "throughput": {"v": {"3": 3.0}}}
    given["jobs"] = [
        {"id": "a", **gang},
        {"id": "b", **gang},
        {"id": "c", "gpus": {"min": 1, "max": 2}, "throughput": {"v": {"1": 1.0, "2": 2.0}}},
    ]
    some = optsched.load(given)
    assert optsched.solve(some, "max-throughput", integral=True).objective == 8
    solution = optsched.solve(some, "max-throughput", integral=True, constraints=["placeable"])
    assert solution.objective == 7
    assert not solution.placement.refused


def test_shares_of_a_gpu_are_not_split() -> None:
    given = unlevelled(nodes=1, gpus_per_node=2)
    option = {"pool": "v", "gpus": 1, "share": 0.6, "throughput": 1.0}
    given["jobs"] = [{"id": name, "options": [option]} for name in "abc"]
    some = optsched.load(given)
    for integral in (False, True):
        kept = optsched.solve(some, "max-throughput", integral=integral, constraints=["placeable"])
        assert kept.objective == pytest.approx(2)


def test_the_check_finds_a_gang_across_racks() -> None:
    solution = optsched.solve(
        instance(1), "max-throughput", integral=True, constraints=["placeable"]
    )
    rows = solution.allocation.rows
    across = [f"{node}/{gpu}" for node in ("v-2", "v-3") for gpu in range(4)]
    flaws = check_placement(
        solution.allocation.classes, rows.job, rows.partner, rows.column, [across]
    )
    assert [flaw.message for flaw in flaws] == [
        "found nodes of 2 groups of level rack (v-2, v-3), expected one: "
        "the row's throughput is for that"
    ]


def test_states_and_journals_keep_the_levels_of_rows(tmp_path: Any) -> None:
    policy = {"formulation": "max-throughput", "constraints": ["placeable"]}
    scheduler = optsched.Scheduler(document(), policy, journal=tmp_path / "j", isolate=False)
    scheduler.solve()
    state = scheduler.state
    scheduler.close()
    written = json.loads(json.dumps(state.to_document()))
    assert {row["level"] for row in written["ledger"]} == {"rack", "cluster"}
    # Files of before there was a level have it in the number of nodes, and were not read again.
    older = json.loads(json.dumps(written))
    for row in older["ledger"]:
        row["nodes"] += 2**31 * (1 + ("rack", "cluster").index(row.pop("level")))
    for some in (written, older):
        read = optsched.RoundState.from_document(some)
        assert (read.ledger.key == state.ledger.key).all()
        assert read.to_document()["ledger"] == written["ledger"]
    recovered = optsched.Scheduler.recover(tmp_path / "j", isolate=False)
    assert recovered.state.to_document() == state.to_document()
    recovered.close()
    written["ledger"][0]["level"] = "row"
    with refuses('ledger[0].level: found "row", expected one of rack, cluster'):
        optsched.RoundState.from_document(written)


def test_rounds_keep_gangs_in_racks() -> None:
    policy = RoundPolicy(formulation="max-throughput", constraints=[{"kind": "placeable"}])
    plan = optsched.solve_round(instance(), policy)
    of_rack = {node: rack for rack, nodes in RACKS["rack"].items() for node in nodes}
    held = [
        {of_rack[gpu.rpartition("/")[0]] for gpu in gpus} for _, gpus, _ in plan.running.values()
    ]
    # Two gangs have a rack each; the third one crosses.
    assert sorted(len(racks) for racks in held) == [1, 1, 2]


@pytest.mark.parametrize(("across", "total", "running"), [(15.0, 47.0, 3), (6.0, 44.0, 2)])
def test_a_penalty_across_racks_changes_program_placement_and_rounds(
    across: float, total: float, running: int
) -> None:
    """Ten jobs on one GPU take the place of a third gang where it is slow across racks."""
    given = document()
    given["workloads"]["w"]["throughput"]["v"] = {"8": {"rack": 16.0, "cluster": across}}
    given["jobs"] += [
        {"id": f"s{row}", "steps": 1e6, "throughput": {"v": {"1": 1.5}}} for row in range(10)
    ]
    fractions = optsched.solve(given, "max-throughput", constraints=["placeable"])
    whole = optsched.solve(given, "max-throughput", constraints=["placeable"], integral=True)
    assert fractions.objective == pytest.approx(total)
    assert whole.objective == pytest.approx(total)
    assert whole.placement is not None and not whole.placement.refused
    assert sum(len(gpus) == 8 for gpus in whole.placement.gpus) == running
    policy = RoundPolicy(formulation="max-throughput", constraints=[{"kind": "placeable"}])
    state = optsched.RoundState.first(optsched.load(given), policy)
    most = 0
    for _ in range(8):
        plan = optsched.solve_round(state)
        most = max(most, sum(len(gpus) == 8 for _, gpus, _ in plan.running.values()))
        state = plan.next_state(state, now=plan.until)
    assert most == running


@pytest.mark.parametrize("kind", ["json", "npz", "yaml"])
def test_files_keep_levels_and_their_rates(kind: str, tmp_path: Any) -> None:
    path = tmp_path / f"instance.{kind}"
    path.write_bytes(instance_bytes(instance(), kind))
    assert optsched.load(path).sha256 == instance().sha256


def test_links_tell_the_groups() -> None:
    links = [
        {"source": f"s{node // 3}", "target": NODES[node], "bandwidth": 25} for node in range(6)
    ]
    links += [{"source": "top", "target": f"s{rack}", "bandwidth": 1} for rack in range(2)]
    vertices = [{"id": name} for name in (*NODES, "s0", "s1", "top")]
    linked = instance(levels="topology", topology={"nodes": vertices, "links": links})
    (rack,) = linked.cluster.levels
    assert rack.name == "rack"
    assert rack.group.tolist() == [0, 0, 0, 1, 1, 1]


def test_models_rate_racks_by_their_links() -> None:
    given = document(levels=RACKS)
    given["cluster"]["pools"][0] |= {
        "gpu": "V100-SXM2-16GB",
        "bandwidth": {"node": 12.5, "leaf": 1},
    }
    given["performance"] = {"model": "analytic"}
    model = {"flops_per_sample": 1.2e10, "bytes_per_sample": 1e8, "gradient_bytes": 1e8}
    given["workloads"] = {"w": {"parameters": {"model": model, "batch_per_gpu": 32}}}
    columns = optsched.compile(optsched.load(given)).classes(frozenset()).to_columns()
    near, far = sorted(columns["rate"], reverse=True)
    assert near > 1.2 * far


def test_three_gangs_get_what_a_model_says_of_the_links_between_racks() -> None:
    """Nothing is stated: racks and rates come from the graph."""
    links = [
        {"source": f"s{node // 3}", "target": NODES[node], "bandwidth": 12.5} for node in range(6)
    ]
    links += [{"source": "top", "target": f"s{rack}", "bandwidth": 0.0504} for rack in range(2)]
    vertices = [{"id": name} for name in (*NODES, "s0", "s1", "top")]
    given = document(levels="topology", topology={"nodes": vertices, "links": links})
    given["cluster"]["pools"][0]["gpu"] = "V100-SXM2-16GB"
    given["performance"] = {"model": "analytic"}
    model = {"flops_per_sample": 1.4858e11, "bytes_per_sample": 1e8, "gradient_bytes": 1e8}
    given["workloads"] = {"w": {"parameters": {"model": model, "batch_per_gpu": 32}}}
    columns = optsched.compile(optsched.load(given)).classes(frozenset()).to_columns()
    near, far = max(columns["rate"]), min(columns["rate"])
    promised = optsched.solve(given, "max-throughput", integral=True)
    assert promised.objective == pytest.approx(3 * near)
    assert promised.objective == pytest.approx(47.55, abs=0.01)
    kept = optsched.solve(given, "max-throughput", integral=True, constraints=["placeable"])
    assert kept.objective == kept.bound == pytest.approx(2 * near + far, rel=1e-12)
    assert kept.objective == pytest.approx(33.8, abs=0.01)
    racks = [{int(gpu[2]) // 3 for gpu in gpus} for gpus in kept.placement.gpus]
    assert sorted(map(len, racks)) == [1, 1, 2]
    assert optsched.verify(given, json.loads(json.dumps(kept.to_document()))).ok


@pytest.mark.parametrize(("gangs", "best"), [
    # A gang of 12 in block b0 leaves it 4 GPUs: another of 12, or one of 6, crosses blocks.
    ([(12, {"block": 7, "cluster": 3})] * 2, 7 + 3),
    ([(12, {"block": 7})] * 2, 7),
    ([(12, {"block": 7, "cluster": 3}), *[(6, {"rack": 5, "block": 4, "cluster": 2})] * 2], 7 + 5 + 2),
    ([(16, {"block": 4, "cluster": 1}), (8, {"rack": 2})], 4 + 2),
    ([(12, {"rack": 9}), (24, {"cluster": 1})], 1),
])  # fmt: skip
def test_preferred_and_required_blocks_by_hand(gangs: list[Any], best: float) -> None:
    """Three racks of two nodes of 4; two of the racks are block b0, the third is b1."""
    racks = {f"r{row}": NODES[2 * row : 2 * row + 2] for row in range(3)}
    given = document(0, levels={"rack": racks, "block": {"b0": NODES[:4], "b1": NODES[4:]}})
    given["jobs"] = [
        {"id": f"j{row}", "gpus": gpus, "throughput": {"v": {str(gpus): rates}}}
        for row, (gpus, rates) in enumerate(gangs)
    ]
    solution = optsched.solve(given, "max-throughput", integral=True, constraints=["placeable"])
    assert solution.objective == pytest.approx(best) and not solution.placement.refused
    assert optsched.verify(given, json.loads(json.dumps(solution.to_document()))).ok


def test_a_level_as_a_requirement() -> None:
    solution = optsched.solve(
        instance(), "max-throughput", integral=True,
        constraints=["placeable", {"kind": "pinned", "level": "rack"}],
    )  # fmt: skip
    assert solution.objective == pytest.approx(2 * 15.85)


def test_what_levels_may_say() -> None:
    twice = {"rack": {"r0": NODES[:3], "r1": NODES[2:]}}
    crossed = {"rack": RACKS["rack"], "block": {"b0": NODES[2:4], "b1": NODES[:2] + NODES[4:]}}
    with refuses(
        "cluster.levels.rack.r1[0]: found ..., expected each node in one group of a level"
    ):
        instance(levels=twice)
    with refuses("cluster.levels.rack: found ..., expected groups that are nested"):
        instance(levels=crossed | {"block": {"b0": NODES[:4], "b1": NODES[4:]}})
    with refuses('cluster.levels.rack.r0[0]: found "x", expected the name of a node'):
        instance(levels={"rack": {"r0": ["x"]}})
    with refuses('cluster.levels: found "topology", expected a cluster with a topology'):
        instance(levels="topology")
    with refuses("workloads.w.throughput.v.8.rack: found no level of the topology, expected ..."):
        instance(levels=None)


def test_jobs_that_stay_take_their_gpus_from_the_others() -> None:
    given = document()
    across = [f"{node}/{gpu}" for node in ("v-2", "v-3") for gpu in range(4)]
    given["jobs"][0] |= {"running": {"pool": "v", "gpus": across}, "preemptible": False}
    solution = optsched.solve(
        optsched.load(given), "max-throughput", integral=True,
        constraints=["placeable", "uninterrupted"],
    )  # fmt: skip
    assert solution.objective == pytest.approx(2 * 15.85 + 2.1)
    assert sorted(solution.placement.gpus[0]) == across
    assert not solution.placement.refused


def test_the_claim_of_a_solver_is_tried_again() -> None:
    solution = optsched.solve(
        instance(), "max-throughput", integral=True, constraints=["placeable"], prove=True
    )
    assert solution.certificate.proof == "cross-checked"


def test_requests_that_fit_nowhere_say_so() -> None:
    given = document(5)
    refused = optsched.place(
        optsched.solve(optsched.load(given), "max-throughput", integral=True)
    ).placement.refused
    assert "of one rack" in refused[0][1]


def test_fractions_that_count_nodes_say_that_they_are_a_relaxation() -> None:
    instance = optsched.load(
        {
            "format": "optsched-instance/1",
            "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 4}]},
            "jobs": [
                {"id": "gang", "gpus": 4, "throughput": {"p": {"4": 1.0}}},
                {"id": "one", "throughput": {"p": 1.0}},
            ],
        }
    )
    fractions = optsched.solve(instance, "max-min-fairness", constraints=["placeable"])
    rounds = optsched.realise(fractions).rounds
    assert rounds is not None and rounds.scale == pytest.approx(0.8)
    assert any("placeable is a relaxation" in note for note in fractions.notes)
    whole = optsched.solve(instance, "max-throughput", integral=True, constraints=["placeable"])
    assert not any("placeable is a relaxation" in note for note in whole.notes)


@pytest.mark.parametrize(
    ("rates", "named"),
    [
        ({"8": {"cluster": 2.1}}, "cluster"),
        ({"8": 2.1}, "2 nodes"),
        ({"8": {"cluster": 2.1, "2": 2.2, "3": 2.3}}, "cluster, 2 nodes and 3 nodes"),
    ],
)
def test_a_required_level_without_rates_names_those_that_have_some(
    rates: dict[str, Any], named: str
) -> None:
    given = document()
    given["workloads"]["w"]["throughput"]["v"] = rates
    constraint = {"kind": "pinned", "level": "rack", "jobs": ["j1"]}
    solution = optsched.solve(given, "max-throughput", constraints=[constraint])
    assert solution.status == "infeasible"
    expected = f"job j1 may run only inside one rack, but its rates are for {named} (pinned)"
    assert expected in solution.conflicts[0].words


@pytest.mark.parametrize(
    ("nodes", "rates", "best"),
    [
        (1, {"2": 70.0}, 70.0),
        (1, {"1": 60.0, "2": 70.0}, 60.0),
        (1, {"2": 70.0, "3": 80.0}, 70.0),
        (2, {"1": 60.0, "3": 70.0}, 70.0),
        (2, {"1": 60.0, "2": 0.0, "3": 70.0}, 60.0),
        (3, {"1": 60.0, "2": 50.0, "4": 70.0}, 70.0),
    ],
)
@pytest.mark.parametrize("down", [0, 1])
def test_a_rate_for_more_nodes_than_there_are_holds_on_all_of_them(
    nodes: int, rates: dict[str, float], best: float, down: int
) -> None:
    pool = {
        "name": "p",
        "nodes": [
            {"name": f"p-{n}", "state": "up" if n < nodes else "down"} for n in range(nodes + down)
        ],
    }
    given = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{**pool, "gpus_per_node": 4}]},
        "jobs": [{"id": "a", "gpus": 4, "throughput": {"p": {"4": rates}}}],
    }
    solution = optsched.solve(given, "max-throughput", integral=True, constraints=["placeable"])
    assert solution.objective == pytest.approx(best)
    assert solution.placement is not None and not solution.placement.refused
    assert optsched.verify(given, solution.to_document()).ok


TURNS = "take turns on"
NODES_NOT_COUNTED = "may find no room side by side on nodes"


@pytest.mark.parametrize(
    ("gangs", "integral", "said"),
    [
        ([1, 1, 1, 1, 1, 1], False, None),
        ([4, 4, 4], False, None),
        ([4, 2, 1], False, None),  # all fit at once
        ([4, 4, 1], False, TURNS),
        ([3, 3, 3], False, NODES_NOT_COUNTED),  # 8 GPUs hold 2.67 of them in total
        ([3], False, None),
        ([3, 3, 2], False, NODES_NOT_COUNTED),  # all at once in total, but on no nodes
        ([4, 4, 2], True, None),
        ([3, 3, 2], True, NODES_NOT_COUNTED),
    ],
)
def test_totals_that_placements_may_not_reach_are_noted(
    gangs: list[int], integral: bool, said: str | None
) -> None:
    given = unlevelled(nodes=2, gpus_per_node=4)
    given["jobs"] = [
        {"id": f"j{row}", "gpus": gpus, "throughput": {"v": {str(gpus): 1.0 * gpus}}}
        for row, gpus in enumerate(gangs)
    ]
    options: dict[str, Any] = {"integral": True} if integral else {}
    formulation = "max-throughput" if integral else "max-min-fairness"
    solution = optsched.solve(given, formulation, **options)
    noted = {words for words in (TURNS, NODES_NOT_COUNTED) if words in " ".join(solution.notes)}
    assert noted == ({said} if said else set())
    if said == TURNS:
        made = optsched.realise(solution)
        assert made.rounds is not None
        assert not any(TURNS in note for note in made.notes)


def test_shares_that_take_turns_are_noted() -> None:
    """Three jobs with 0.6 of a GPU each on one GPU."""
    given = unlevelled(nodes=1, gpus_per_node=1)
    option = [{"pool": "v", "gpus": 1, "share": 0.6, "throughput": 1.0}]
    given["jobs"] = [{"id": f"j{row}", "options": option} for row in range(3)]
    solution = optsched.solve(given, "max-min-fairness")
    assert any(NODES_NOT_COUNTED in note for note in solution.notes)


def noted(given: dict[str, Any], formulation: str, **options: Any) -> bool:
    """Whether a note says that nodes are not counted."""
    solution = optsched.solve(given, formulation, **options)
    return any(NODES_NOT_COUNTED in note for note in solution.notes)


def gangs_of(*gpus: int) -> list[dict[str, Any]]:
    """Jobs on so many GPUs of pool v, each on one node."""
    return [
        {"id": f"j{row}", "gpus": count, "throughput": {"v": {str(count): {"1": 1.0 * count}}}}
        for row, count in enumerate(gpus)
    ]


def test_nodes_of_several_sizes_are_noted() -> None:
    """Two gangs of 8 on one node each, of 16 GPUs; only one node has 8 of them."""
    given = unlevelled(nodes=1, gpus_per_node=8)
    given["cluster"]["pools"] = [
        {
            "name": "v",
            "nodes": [{"name": f"n{row}", "gpus": gpus} for row, gpus in enumerate([8, 4, 4])],
        }
    ]
    given["jobs"] = gangs_of(8, 8)
    assert noted(given, "max-throughput", integral=True)
    given["jobs"] = gangs_of(4, 4, 4)
    assert not noted(given, "max-throughput", integral=True)


def test_cpus_of_nodes_are_noted() -> None:
    """Three jobs with 2 CPUs each on nodes of 3: 6 in total, and room for two."""
    given = unlevelled(nodes=2, gpus_per_node=2)
    given["cluster"]["pools"][0]["cpus_per_node"] = 3
    given["workloads"] = {"w": {"demand": {"cpu": 2}, "throughput": {"v": 1.0}}}
    given["jobs"] = [{"id": f"j{row}", "workload": "w"} for row in range(3)]
    assert noted(given, "max-min-fairness")


def test_a_note_on_nodes_stays_beside_rounds_and_goes_with_a_placement_of_all() -> None:
    """Rounds without `placeable` count totals too."""
    given = unlevelled(nodes=2, gpus_per_node=4)
    given["jobs"] = gangs_of(3, 3, 2)
    made = optsched.realise(optsched.solve(given, "max-min-fairness"))
    assert any(NODES_NOT_COUNTED in note for note in made.notes)
    solution = optsched.solve(given, "max-throughput", integral=True)
    placed = optsched.place(solution)
    assert placed.placement is not None and placed.placement.refused
    assert any(NODES_NOT_COUNTED in note for note in placed.notes)
    given["jobs"] = gangs_of(3, 3)
    solution = optsched.solve(given, "max-throughput", integral=True)
    assert any(NODES_NOT_COUNTED in note for note in solution.notes)
    assert not any(NODES_NOT_COUNTED in note for note in optsched.place(solution).notes)


def test_placeable_is_no_relaxation_of_jobs_on_one_gpu() -> None:
    given = unlevelled(nodes=1, gpus_per_node=4)
    given["jobs"] = gangs_of(1, 1)
    solution = optsched.solve(given, "max-min-fairness", constraints=[{"kind": "placeable"}])
    assert not any("relaxation" in note for note in solution.notes)


def test_metrics_of_a_placement_say_what_is_fragmented() -> None:
    """Two gangs of 3 on nodes of 4 leave a GPU on each: no use to them, but to a job on one GPU."""
    given = unlevelled(nodes=2, gpus_per_node=4)
    gang = {"gpus": 3, "throughput": {"v": {"3": 3.0}}}
    given["jobs"] = [{"id": "a", **gang}, {"id": "b", **gang}]
    solution = optsched.solve(given, "max-throughput", integral=True)
    assert "fragmentation" not in solution.metrics
    placed = optsched.place(solution)
    assert placed.metrics["fragmentation"] == {"free": 2.0, "gpus": 2.0}
    written = json.loads(json.dumps(placed.to_document()))
    assert optsched.verify(optsched.load(given), written).ok
    written["metrics"]["fragmentation"]["gpus"] = 1.0
    findings = optsched.verify(optsched.load(given), written).findings
    assert [finding.field for finding in findings] == ["metrics.fragmentation.gpus"]
