"""Other values of job arrays, other states of nodes: replaced, checked, and nothing else touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refusals import refuses

from optsched.errors import UsageError
from optsched.instance import Cluster, Instance, instance_bytes, with_columns, with_nodes

# Private names: readers and writers are checked one by one, below `Instance`
from optsched.instance.archive import from_npz

Document = dict[str, Any]


@pytest.fixture
def instance(everything: Document) -> Instance:
    return Instance.from_document(everything)


# --- columns ----------------------------------------------------------------------------------------------------------


def test_columns_are_replaced_as_if_the_document_said_so(
    everything: Document, instance: Instance
) -> None:
    changed = with_columns(
        instance,
        now=2000.0,
        steps_done=np.array([1.0, 2.0, 3.0, 0.0]),
        weight=2.5,
        deadline=[np.inf, 9000.0, np.inf, 9000.0],
        soft_deadline=[True, True, False, False],
        tenant=[-1, 0, 1, 0],
        running={2: (0, ("small/0",), 1500.0), 0: (0, ("big/0", "big/1"), None)},
    )
    everything["now"] = 2000.0
    for row, (job, steps) in enumerate(zip(everything["jobs"], (1, 2, 3, 0), strict=True)):
        job |= {"steps_done": steps, "weight": 2.5, "deadline": 9000.0 if row % 2 else None}
        job |= {"deadline_kind": "soft" if row == 1 else "hard"}
        job |= {"tenant": (None, "vision", "speech", "vision")[row], "running": None}
        job.setdefault("arrival", 0.0)
    everything["jobs"][0]["running"] = {"pool": "v100", "gpus": ["big/0", "big/1"]}
    everything["jobs"][2]["running"] = {"pool": "v100", "gpus": ["small/0"], "since": 1500.0}
    assert changed.sha256 == Instance.from_document(everything).sha256
    assert list(changed.jobs_table.running) == [0, 2]
    assert instance.jobs_table.weight[0] != 2.5 and instance.now == 1000.0


def test_nothing_is_changed_where_nothing_is_given(instance: Instance) -> None:
    assert with_columns(instance).sha256 == instance.sha256
    assert with_columns(instance, running={}).jobs_table.running == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stps": 1.0}, "stps: found no column that can be replaced, expected one of steps, steps_done, weight"),
        ({"gpus_min": 1}, "gpus_min: found no column that can be replaced, expected one of steps"),
        ({"weight": [1.0]}, "weight: found an array of shape (1,), expected one number or shape (4,)"),
        ({"weight": [[1.0], 2.0]}, "weight: found rows of different lengths, expected an array"),
        ({"weight": "1"}, "weight: found an array of <U1, expected numbers"),
        ({"weight": [1, 0, 1, 1]}, 'weight[1]: found 0.0 (job "b"), expected a number above 0'),
        ({"steps_done": [0, 0, 0, np.nan]}, 'steps_done[3]: found nan (job "d"), expected a finite number'),
        ({"steps_done": [0, -1, 0, 0]}, 'steps_done[1]: found -1.0 (job "b"), expected a number of at least 0'),
        ({"deadline": -np.inf}, 'deadline[0]: found -inf (job "a"), expected a number, or inf for none'),
        ({"deadline": 1e200}, 'deadline[0]: found 1e+200 (job "a"), expected a number of at most 1e+100, or inf'),
        ({"deadline": -5.0}, 'jobs[0].deadline: found -5, before the arrival 10 (job "a")'),
        ({"arrival": 1e99}, 'jobs[0].deadline: found 5000, before the arrival 1e+99 (job "a")'),
        ({"tenant": 2}, 'tenant[0]: found 2 (job "a"), expected a row below 2, or -1 for none'),
        ({"tenant": 0.0}, "tenant: found an array of float64, expected whole numbers"),
        ({"preemptible": 1}, "preemptible: found an array of int64, expected true or false"),
        ({"now": np.inf}, "now: found Infinity, expected a number from -1e+100 to 1e+100"),
        ({"now": np.nan}, "now: found NaN, expected a number from -1e+100 to 1e+100"),
        ({"running": {4: (0, ("big/0",), None)}}, "running: found the row 4, expected rows of the 4 jobs"),
        ({"running": {1: (7, ("big/0",), None)}}, "running[1].pool: found 7, expected a row of the 2 pools"),
        ({"running": {1: (0, (), None)}}, "running[1].gpus: found [], expected at least 1 entry"),
        ({"running": {1: (0, ("big/9",), None)}}, 'running[1].gpus[0]: found "big/9", expected a GPU of pool "v100" w'),
        ({"running": {1: (1, ("big/0",), None)}}, 'running[1].gpus[0]: found "big/0", expected a GPU of pool "a100" w'),
        ({"running": {1: (0, ("big/0", "big/0"), None)}}, 'running[1].gpus: found ["big/0", "big/0"], expected each'),
        ({"running": {1: (0, ("big/0",), np.inf)}}, "running[1].since: found Infinity, expected a finite number, or n"),
    ],
    ids=str,
)  # fmt: skip
def test_columns_that_cannot_be(instance: Instance, changes: dict[str, Any], message: str) -> None:
    with refuses(f"{message}..."):
        with_columns(instance, **changes)


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_nodes_get_other_states(everything: Document, instance: Instance) -> None:
    changed = with_nodes(instance, {"small": "reserved", "a100-1": "down"})
    assert changed.cluster.pools[0].node_state.tolist() == [
        instance.cluster.pools[0].node_state[0],
        3,
    ]
    assert changed.cluster.pools[1].node_state[1] == 2
    assert changed.jobs_table is instance.jobs_table
    everything["cluster"]["pools"][0]["nodes"][1]["state"] = "reserved"
    assert (
        with_nodes(instance, {"small": "reserved"}).sha256
        == Instance.from_document(everything).sha256
    )
    assert with_nodes(instance, {}) is instance


def test_a_pool_of_a_count_is_the_same_after_its_nodes_were_down(instance: Instance) -> None:
    """Read back while a node is down, its nodes are written out one by one."""
    down = with_nodes(instance, {"a100-0": "down"})
    for read in (Instance.from_document(down.to_document()), from_npz(instance_bytes(down, "npz"))):
        assert read.cluster.pools[1].node_names == down.cluster.pools[1].node_names
        assert with_nodes(read, {"a100-0": "up"}).sha256 == instance.sha256


def test_nodes_are_looked_up_once(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    first = with_nodes(instance, {"small": "down"})
    monkeypatch.setattr(Cluster, "_listed_nodes", None)  # whatever is looked up is already there
    assert with_nodes(first, {"big": "down"}).cluster.pools[0].node_state.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"smal": "up"}, 'no node is called "smal"; did you mean small?'),
        ({"a100-7": "up"}, 'no node is called "a100-7"; did you mean a100-1?'),
        ({"": "up"}, 'no node is called ""'),
        (
            {"small": "off"},
            'node "small": found state "off", expected one of up, drain, down, reserved',
        ),
    ],
)
def test_nodes_and_states_that_there_are_not(
    instance: Instance, states: dict[str, str], message: str
) -> None:
    with refuses(message, UsageError):
        with_nodes(instance, states)
