"""What cannot run: the reason of every column, the words for every job, and columns put back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compile_cases import (
    ConstantModel,
    columns_of,
    compiled,
    document,
    dropped_of,
    random_candidates,
)
from documents import instance_document
from refusals import refuses

import optsched
from optsched.candidates import Absence, Drop

POOL = {"name": "a", "nodes": 2, "gpus_per_node": 4, "gpu_memory": 16}


def words(jobs: list[dict[str, Any]], pools: Any = (POOL,), **more: Any) -> dict[str, str]:
    """Reason of every unplaced job."""
    candidates = compiled(
        document(list(pools) if not isinstance(pools, dict) else pools, jobs, **more)
    )
    names = candidates.instance.jobs_table.names
    told = {names[job]: reason for job, reason in candidates.unplaced()}
    assert all(reason.isprintable() and 0 < len(reason) < 500 for reason in told.values())
    return told


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"steps": 0}, "no step left to do"),
        ({"steps": 10, "steps_done": 10}, "no step left to do"),
        ({"steps": 10, "steps_done": 11}, "no step left to do"),
        ({"steps": 0, "arrival": 500}, "no step left to do"),
        ({"arrival": 130}, "arrives at 130 s, after now (100 s)"),
        ({"gpus": 9}, "can run nowhere: a: needs 9 GPUs, but only 8 are usable"),
        ({"gpus": 2**31}, "can run nowhere: a: needs 2147483648 GPUs, but only 8 are usable"),
        ({"gpus": 2}, "can run nowhere: a: no rate is given for 2 GPUs"),
        ({"gpus": 3}, "can run nowhere: a: rate 0 on 3 GPUs"),
        ({"workload": "bare"}, "can run nowhere: a: no rate is given for 1 GPU"),
        (
            {"workload": "big"},
            "can run nowhere: a: out of GPU memory (needs 20.5 GB per GPU, has 16)",
        ),
        (
            {"throughput": {"a": {"5": {"1": 1.0}}}, "gpus": 5},
            "can run nowhere: a: no rate is given for 5 GPUs; a: 5 GPUs cannot be had on 1 node",
        ),
        (
            {"throughput": {"a": {"5": {"2": 0.0, "3": 1.0}}}, "gpus": 5},
            "can run nowhere: a: rate 0 on 5 GPUs; a: 5 GPUs cannot be had on 3 nodes",
        ),
        (
            {"gpus": {"min": 2, "max": 9}},
            "can run nowhere: a: no rate is given for 2 GPUs; a: rate 0 on 3 GPUs",
        ),
        (
            {"gpus": {"min": 2, "max": 9, "levels": [2, 3, 9]}},
            "can run nowhere: a: no rate is given for 2 GPUs; a: rate 0 on 3 GPUs; "
            "a: needs 9 GPUs, but only 8 are usable",
        ),
        (
            {"gpus": {"min": 5, "max": 9, "levels": [5, 6, 7, 8, 9]}},
            "can run nowhere: "
            + "; ".join(f"a: no rate is given for {n} GPUs" for n in (5, 6, 7, 8))
            + "; ...",
        ),
        ({"options": [{"throughput": 0.0}]}, "can run nowhere: without a pool: rate 0"),
        (
            {"options": [{"pool": "a", "gpus": 1, "throughput": 0.0}]},
            "can run nowhere: a: rate 0 on 1 GPU",
        ),
        (
            {"options": [{"pool": "a", "gpus": 9}, {"pool": "a", "gpus": 2, "throughput": 0.0}]},
            "can run nowhere: a: needs 9 GPUs, but only 8 are usable; a: rate 0 on 2 GPUs",
        ),
        (
            {
                "workload": "big",
                "options": [{"pool": "a", "gpus": 1, "share": 0.5, "throughput": 1.0}],
            },
            "can run nowhere: a: out of GPU memory (needs 20.5 GB per GPU, has 8)",
        ),
    ],
)
def test_the_reason_is_told_in_words(job: dict[str, Any], reason: str) -> None:
    workloads = {
        "w": {"throughput": {"a": {"1": 1.0, "3": 0.0}}},
        "bare": {},
        "big": {"throughput": {"a": 1.0}, "gpu_memory": 20.5},
    }
    bringing = (
        {} if "options" in job or "throughput" in job or "workload" in job else {"workload": "w"}
    )
    assert words([job | bringing], workloads=workloads, now=100) == {"j0": reason}


def test_pools_with_the_same_trouble_share_the_words() -> None:
    pools = {"a": 1, "b": 1, "c": 3, "empty": 0}
    told = words([{"throughput": {"a": {"2": 1.0}, "c": {"2": 0.0}}, "gpus": 2}], pools)
    assert told["j0"] == (
        "can run nowhere: a, b: needs 2 GPUs, but only 1 is usable; c: rate 0 on 2 GPUs; "
        "empty: needs 2 GPUs, but none is usable"
    )


def test_forty_pools_stay_readable() -> None:
    told = words(
        [{"throughput": {}, "gpus": 1}],
        {f"a pool with quite a long name {row}": 1 for row in range(40)},
    )
    assert len(told["j0"]) < 200
    assert told["j0"].endswith("...: no rate is given for 1 GPU")


def test_where_every_node_is_down_every_job_says_so() -> None:
    nodes = [
        {"name": f"n{row}", "state": state}
        for row, state in enumerate(("down", "drain", "reserved"))
    ]
    pool = POOL | {"nodes": [*nodes, {"name": "later", "available_from": 1e9}], "cpus_per_node": 4}
    three: list[dict[str, Any]] = [{}, {"gpus": 2}, {"options": [{"pool": "a", "gpus": 1}]}]
    jobs = [{"workload": "w"} | job for job in three] * 3
    workloads = {"w": {"throughput": {"a": {"1": 1.0, "2": 2.0}}, "demand": {"cpu": 1}}}
    made = document([pool], jobs, workloads=workloads)
    told = words(jobs, [pool], workloads=workloads)
    gpus = ["1 GPU", "2 GPUs", "1 GPU"] * 3
    assert told == {
        f"j{row}": f"can run nowhere: a: needs {n}, but none is usable"
        for row, n in enumerate(gpus)
    }
    candidates = compiled(made)
    assert len(candidates.classes(frozenset())) == candidates.classes(frozenset()).columns == 0
    assert candidates.resources.names == ("a",)
    assert candidates.resources.capacity.tolist() == [0.0]


def test_a_pool_without_nodes_only_matters_where_jobs_need_it() -> None:
    pools = {"empty": 0, "a": 2}
    jobs = [{"throughput": {"empty": 5.0, "a": 1.0}}, {"throughput": {"empty": 5.0}}]
    assert words(jobs, pools) == {
        "j1": "can run nowhere: empty: needs 1 GPU, but none is usable; a: no rate is given for 1 GPU"
    }


def test_an_instance_without_jobs() -> None:
    candidates = compiled(document({"a": 1}, [], resources=[{"name": "budget", "capacity": 3}]))
    assert list(candidates.unplaced()) == []
    assert len(candidates.columns) == len(candidates.dropped) == len(candidates.configurations) == 0
    assert candidates.resources.names == ("a", "budget")
    for view in (candidates, candidates.per_job(), candidates.admitting(*Drop)):
        classes = view.classes(frozenset({"weight", "steps_left"}))
        assert (len(classes), classes.columns) == (0, 0)
        assert classes.throughput.shape == classes.member.shape == (0, 0)
        assert classes.usage.shape == (2, 0)
        assert classes.weight.shape == classes.gang.shape == classes.limit.shape == (0,)


def test_a_job_with_one_column_is_placed_however_many_were_dropped() -> None:
    jobs = [{"gpus": {"min": 1, "max": 9}, "throughput": {"a": {"1": 0.0, "9": 4.0, "3": 2.0}}}]
    candidates = compiled(document([POOL], jobs))
    assert candidates.absence.tolist() == [Absence.PRESENT]
    assert list(candidates.unplaced()) == []
    assert {(row.gpus, row.reason) for row in dropped_of(candidates)} == {(1, Drop.ZERO_RATE)}


def test_a_job_that_runs_only_in_pairs_is_placed() -> None:
    jobs = [{"workload": "w"}, {"workload": "v"}]
    entry = {"workloads": ["w", "v"], "pool": "a", "gpus": 1, "throughput": [1.0, 0.0]}
    candidates = compiled(document([POOL], jobs, workloads={"w": {}, "v": {}}, colocation=[entry]))
    assert candidates.absence.tolist() == [Absence.PRESENT] * 2
    (column,) = columns_of(candidates)
    assert column.rates == (1.0, 0.0)


def test_a_pair_that_cannot_run_is_no_reason_for_either_job() -> None:
    jobs = [{"workload": "w"}, {"workload": "v"}]
    entry = {"workloads": ["w", "v"], "pool": "a", "gpus": 1, "throughput": [0.0, 0.0]}
    told = words(jobs, workloads={"w": {}, "v": {"throughput": {"a": 1.0}}}, colocation=[entry])
    assert told == {"j0": "can run nowhere: a: no rate is given for 1 GPU"}


def test_memory_of_a_pair_adds_up_and_rounding_is_no_reason() -> None:
    """0.1 + 0.2 > 0.3 in floating point."""
    entry = {"workloads": ["w", "v"], "pool": "a", "gpus": 1, "throughput": [1.0, 1.0]}
    for memory, reasons in ((0.3, []), (0.29, [Drop.OUT_OF_MEMORY])):
        workloads = {
            name: {"throughput": {"a": 1.0}, "gpu_memory": gb}
            for name, gb in (("w", 0.1), ("v", 0.2))
        }
        jobs = [{"workload": "w"}, {"workload": "v"}]
        candidates = compiled(
            document([POOL | {"gpu_memory": memory}], jobs, workloads=workloads, colocation=[entry])
        )
        assert [row.reason for row in dropped_of(candidates)] == reasons
        assert len(columns_of(candidates)) == 3 - len(reasons)


def test_a_spread_over_nodes_without_gpus_cannot_be_had() -> None:
    nodes = [{"name": "n0", "gpus": 4}, {"name": "n1", "gpus": 0}]
    jobs = [{"throughput": {"a": {"2": {"1": 1.0, "2": 2.0}}}, "gpus": 2}]
    candidates = compiled(document([{"name": "a", "nodes": nodes}], jobs))
    assert [(row.nodes, row.reason) for row in dropped_of(candidates)] == [(2, Drop.TOO_MANY_NODES)]
    assert [column.nodes for column in columns_of(candidates)] == [1]


# --- admitting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_admitting_puts_columns_back_at_rate_0(seed: int) -> None:
    candidates = random_candidates(seed)
    before, dropped = columns_of(candidates), dropped_of(candidates)
    assert columns_of(candidates.admitting()) == before
    for reasons in (
        (Drop.ZERO_RATE,),
        (Drop.ZERO_RATE, Drop.NO_RATE),
        (Drop.TOO_MANY_GPUS,),
        tuple(Drop)[1:],
    ):
        admitted = candidates.admitting(*reasons)
        after = columns_of(admitted)
        assert set(before) <= set(after)
        back = [column for column in after if column not in set(before)]
        assert (
            len(admitted.columns)
            == len(candidates.columns) + np.isin(candidates.dropped.drop, reasons).sum()
        )
        assert {(column.jobs, column.pool, column.gpus, column.option) for column in back} == {
            (row.jobs, row.pool, row.gpus, row.option) for row in dropped if row.reason in reasons
        }
        assert all(rate == 0 for column in back for rate in column.rates)
        assert {row for row in dropped if row.reason not in reasons} == set(dropped_of(admitted))
        names = candidates.instance.jobs_table.names
        placed = {name for column in after for name in column.jobs}
        missing = {
            names[job] for job in np.flatnonzero(admitted.absence == Absence.NO_COLUMN).tolist()
        }
        assert (
            missing
            == {
                names[job]
                for job in np.flatnonzero(candidates.absence == Absence.NO_COLUMN).tolist()
            }
            - placed
        )
        assert columns_of(candidates) == before


def test_admitting_keeps_jobs_apart_where_they_were() -> None:
    candidates = compiled(document({"a": 1, "b": 1}, [{"throughput": {"a": 1.0}}] * 2)).per_job()
    admitted = candidates.admitting(Drop.NO_RATE)
    assert not admitted.aggregate
    assert len(admitted.classes(frozenset())) == 2
    assert admitted.classes(frozenset()).columns == 4


# --- a second model ------------------------------------------------------------------------------------------------


def test_a_model_is_asked_only_what_nobody_states() -> None:
    pools = {"a": 4, "b": 4}
    workloads = {"w": {"throughput": {"a": {"1": 2.0, "2": 0.0}}}, "bare": {}}
    jobs = [
        {"workload": "w"},
        {"workload": "w", "gpus": 2},
        {"workload": "w", "throughput": {"a": 9.0}},
        {"throughput": {"a": 9.0}},
        {"workload": "bare", "gpus": 3},
        {"workload": "bare", "gpus": {"min": 1, "max": 5}},
        {"options": [{"pool": "a", "gpus": 1}]},
    ]
    model = ConstantModel()
    candidates = compiled(document(pools, jobs, workloads=workloads), model)
    ((batch, configurations, edges),) = model.asked
    names = candidates.instance.jobs_table.names
    asked = {
        (
            names[candidates.kinds.first[kind]],
            "ab"[configurations.pool[row]],
            int(configurations.gpus[row]),
        )
        for kind, row in zip(*edges, strict=True)
    }
    assert asked == {
        ("j0", "b", 1), ("j1", "b", 2), *(("j4", pool, 3) for pool in "ab"),
        *(("j5", pool, gpus) for pool in "ab" for gpus in (1, 2, 3, 4)),
    }  # fmt: skip
    assert not batch.own[edges[0]].any()
    filled = {
        (column.jobs[0], column.pool, column.gpus): column.rates[0]
        for column in columns_of(candidates)
    }
    assert filled["j0", "a", 1] == 2.0
    assert filled["j0", "b", 1] == 0.125
    assert filled["j1", "b", 2] == 0.25
    assert ("j1", "a", 2) not in filled  # a stated zero stays
    assert filled["j2", "a", 1] == filled["j3", "a", 1] == 9.0
    assert ("j2", "b", 1) not in filled
    assert {gpus for job, _, gpus in filled if job == "j5"} == {1, 2, 4}
    assert (candidates.dropped.rate == 0).all()
    columns = candidates.columns
    guessed = (columns.rate == columns.gpus / 8) & (columns.option < 0)
    assert (columns.source[guessed] == 4).all()
    assert (columns.log_sd[guessed] == 0.5).all()
    assert (columns.source[~guessed] == 0).all()
    assert (columns.log_sd[~guessed] == 0).all()
    told = {names[job]: reason for job, reason in candidates.unplaced()}
    assert told == {"j4": "can run nowhere: a, b: out of GPU memory on 3 GPUs"}


def test_a_model_that_says_nonsense_is_named() -> None:
    for rate in (np.nan, np.inf, -1.0, 0.0):

        class Wrong(ConstantModel):
            def predict(self, *args: Any, wrong: float = rate, **more: Any) -> Any:
                answer = super().predict(*args, **more)
                answer.rate[-1] = wrong
                return answer

        with pytest.raises(ValueError, match=f"performance model constant says {rate} steps/s"):
            compiled(document({"a": 1}, [{"workload": "w"}], workloads={"w": {}}), Wrong())


@pytest.mark.parametrize("generate", [False, True])
def test_a_range_of_very_many_gpu_counts_is_refused(
    monkeypatch: pytest.MonkeyPatch, generate: bool
) -> None:
    """Only as far as the pools go, and only where a model has rates for all of them."""
    monkeypatch.setattr("optsched.candidates.kinds.MOST_COUNTS", 6)
    document = instance_document(
        [{"name": "v100", "gpu": "V100-SXM2-16GB", "nodes": 1, "gpus_per_node": 8}],
        [
            {"id": name, "workload": "w", "steps": 5, "gpus": {"min": 1, "max": most}}
            for name, most in JOBS
        ],
        performance={"model": "prior"},
        workloads={"w": {"throughput": {"v100": {"1": 2.0}}}},
    )
    found = "jobs[1].gpus: found a range of 8 numbers of GPUs that the largest pool has"
    with refuses(
        f"{found}, expected at most 6 where the rates come from a model: state the numbers as levels"
    ):
        optsched.solve(document, generate_columns=generate)
    document["jobs"][1]["gpus"]["levels"] = [1, 8]
    assert optsched.solve(document, generate_columns=generate).status == "optimal"
    document["performance"] = {"model": "table"}
    del document["jobs"][1]["gpus"]["levels"]
    assert optsched.solve(document).status == "optimal"


JOBS = (("few", 6), ("many", 10**9))
