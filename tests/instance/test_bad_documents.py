"""Documents with one thing wrong each: every refusal names the field, what stands there and what should."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document
from refusals import refuses, stated

import optsched
from optsched.errors import InvalidInput
from optsched.instance import Instance, reading

# Private names: readers and writers are checked one by one, below `Instance`
from optsched.instance.build import build_instance

Document = dict[str, Any]
Edit = Callable[[Document, str, Any], Document]
Refusal = Callable[[object], InvalidInput]

NAN, INF = math.nan, math.inf

# (path, value put there, message). The value `...` takes the key away, a last `+` appends to the list. A message that
# begins with "found" is about the very path.
HEADER = [
    ("format", ..., 'found nothing, expected "optsched-instance/1"'),
    (
        "format",
        "optsched-instance/2",
        'found "optsched-instance/2", expected "optsched-instance/1"',
    ),
    ("format", 1, 'found 1, expected "optsched-instance/1"'),
    ("format", None, 'found null, expected "optsched-instance/1"'),
    (
        "jbos",
        [],
        "found an unknown key 'jbos', expected one of the format's keys (did you mean jobs?)",
    ),
    (
        "job",
        [],
        "found an unknown key 'job', expected one of the format's keys (did you mean jobs?)",
    ),
    ("zzz", 1, "found an unknown key 'zzz', expected one of the format's keys"),
    ("name", "", 'found "", expected a non-empty text'),
    ("name", 5, "found 5, expected text"),
    ("name", None, "found null, expected text"),
    ("round", 0, "found 0, expected a number above 0"),
    ("round", -1, "found -1, expected a number above 0"),
    ("round", "6 min", 'found "6 min", expected a number of seconds'),
    ("now", NAN, "found NaN, expected a finite number"),
    ("now", None, "found null, expected a number"),
    ("now", True, "found true, expected a number"),
    ("cluster", ..., "found nothing, expected this key"),
    ("cluster", [], "found [], expected an object"),
    (
        "cluster.pool",
        [],
        "found an unknown key 'pool', expected one of the format's keys (did you mean pools?)",
    ),
    ("performance", "table", 'found "table", expected an object'),
    ("performance", {}, "performance.model: found nothing, expected this key"),
    ("performance", {"path": "rates.csv"}, "performance.model: found nothing, expected this key"),
    ("performance.model", "", 'found "", expected a non-empty text'),
    ("performance.model", None, "found null, expected text"),
    ("performance.tables", {"f": NAN}, "performance.tables.f: found NaN, expected a finite number"),
    ("constraints", {}, "found {}, expected a list"),
    ("constraints", [5], "constraints[0]: found 5, expected an object"),
    ("constraints", [{"limit": 3}], "constraints[0].kind: found nothing, expected this key"),
    (
        "constraints",
        [{"kind": "budget", "limit": INF}],
        "constraints[0].limit: found Infinity, expected a finite number",
    ),
]

POOLS = [
    ("cluster.pools", ..., "found nothing, expected this key"),
    ("cluster.pools", [], "found [], expected at least 1 entry"),
    ("cluster.pools", None, "found null, expected a list"),
    ("cluster.pools.+", 5, "cluster.pools[2]: found 5, expected an object"),
    (
        "cluster.pools.0.nodess",
        1,
        "found an unknown key 'nodess', expected one of the format's keys (did you mean nodes?)",
    ),
    (
        "cluster.pools.0.gpu_per_node",
        1,
        "found an unknown key 'gpu_per_node', expected one of the format's keys (did you mean gpus_per_node?)",
    ),
    (
        "cluster.pools.0.bandwidth.intra_nod",
        1,
        "found an unknown key 'intra_nod', expected one of the format's keys (did you mean intra_node?)",
    ),
    ("cluster.pools.1.name", "v100", 'found "v100" a second time, expected names that differ'),
    ("cluster.pools.0.name", ..., "found nothing, expected this key"),
    (
        "cluster.pools.1.gpus_per_node",
        ...,
        "found nothing, expected the GPUs of each node, as nodes is a count",
    ),
    ("cluster.pools.1.nodes", -1, "found -1, expected a number of at least 0"),
    ("cluster.pools.1.nodes", 1.5, "found 1.5, expected a whole number"),
    ("cluster.pools.1.nodes", True, "found true, expected a whole number"),
    ("cluster.pools.1.nodes", "two", 'found "two", expected a whole number'),
    (
        "cluster.pools.1.nodes",
        10**7,
        "found 10000002 nodes with 40000008 GPUs up to this pool, "
        "expected at most 10 million nodes and 100 million GPUs in all",
    ),
    (
        "cluster.pools.1.nodes",
        10**30,
        "found 1000000000000000000000000000000, expected a number of at most 10000000",
    ),
    ("cluster.pools.1.nodes", ..., "found nothing, expected this key"),
    ("cluster.pools.1.gpus_per_node", -4, "found -4, expected a number of at least 0"),
    (
        "cluster.pools.1.gpus_per_node",
        10**30,
        "found 1000000000000000000000000000000, expected a number of at most 100000000",
    ),
    ("cluster.pools.0.gpu_memory", 0, "found 0, expected a number above 0"),
    ("cluster.pools.0.cost_per_gpu_hour", -1, "found -1, expected a number of at least 0"),
    ("cluster.pools.0.bandwidth.node", 0, "found 0, expected a number above 0"),
    ("cluster.pools.0.bandwidth", 12, "found 12, expected an object"),
    (
        "cluster.pools.1.nodes",
        [{"name": "n0"}, {"name": "n0"}],
        'cluster.pools[1].nodes[1].name: found "n0" a second time (pool "k80"), expected node names that differ',
    ),
    (
        "cluster.pools.1.nodes",
        [{"name": "v100-1"}],
        'cluster.pools[1].nodes[0].name: found "v100-1" a second time (pool "v100"), expected node names that differ',
    ),
    (
        "cluster.pools.1.nodes",
        [{"name": "n0", "state": "broken"}],
        "cluster.pools[1].nodes[0].state: found \"broken\", expected one of 'up', 'drain', 'down' or 'reserved'",
    ),
    (
        "cluster.pools.1.nodes",
        [{"name": "n0", "gpus": -1}],
        "cluster.pools[1].nodes[0].gpus: found -1, expected a number of at least 0",
    ),
    (
        "cluster.pools.1.nodes",
        [{"gpus": 1}],
        "cluster.pools[1].nodes[0].name: found nothing, expected this key",
    ),
    (
        "cluster.pools.1.nodes",
        [{"name": "n0", "gpu": 4}],
        "cluster.pools[1].nodes[0].gpu: found an unknown key 'gpu', expected one of the format's keys "
        "(did you mean gpus?)",
    ),
    ("cluster.pools.1.nodes", ["n0"], 'cluster.pools[1].nodes[0]: found "n0", expected an object'),
    (
        "cluster.pools.1.nodes",
        [{"name": "n0", "gpus": 2**31}],
        "found 3 nodes with 2147483656 GPUs up to this pool, "
        "expected at most 10 million nodes and 100 million GPUs in all",
    ),
    (
        "cluster.pools.1",
        {"name": "k80", "nodes": [{"name": "n0"}]},
        "cluster.pools[1].nodes[0].gpus: found nothing, expected the GPUs of the node, or gpus_per_node of the pool",
    ),
    (
        "cluster.pools.0.partitions",
        [{"profile": "1g"}],
        "cluster.pools[0].partitions[0].compute_slices: found nothing, expected this key",
    ),
    (
        "cluster.pools.0.partitions",
        [{"profile": "1g", "compute_slices": 1, "memory_slices": 1, "starts": []}],
        "cluster.pools[0].partitions[0].starts: found [], expected at least 1 entry",
    ),
]

RESOURCES = [
    (
        "cluster.resources.+",
        {"name": "budget", "capacity": 1},
        'cluster.resources[1].name: found "budget" a second time, expected names that differ',
    ),
    (
        "cluster.resources.+",
        {"name": "cpu", "capacity": 1},
        'cluster.resources[1].name: found "cpu", expected a name that is no pool\'s and neither cpu nor '
        "memory (they belong to pools)",
    ),
    (
        "cluster.resources.+",
        {"name": "k80", "capacity": 1},
        'cluster.resources[1].name: found "k80", expected a name that is no pool\'s and neither cpu nor '
        "memory (they belong to pools)",
    ),
    ("cluster.resources.0.capacity", -1, "found -1, expected a number of at least 0"),
    ("cluster.resources.0.capacity", "100", 'found "100", expected a number'),
    ("cluster.resources.0.capacity", ..., "found nothing, expected this key"),
    (
        "cluster.resources.0.kind",
        "money",
        "found \"money\", expected one of 'renewable' or 'consumable'",
    ),
    ("cluster.resources.0.pool", "p100", 'found "p100", expected one of the pools v100, k80'),
    (
        "cluster.resources.0.nodes",
        ["v100-9"],
        'cluster.resources[0].nodes[0]: found "v100-9", expected the name of a node',
    ),
    (
        "cluster.resources.0.nodes",
        ["v100-0", "v100-0"],
        'found ["v100-0", "v100-0"], expected each node once',
    ),
    ("cluster.resources.0.nodes", [], "found [], expected at least 1 entry"),
    (
        "cluster.resources.0.capcity",
        3,
        "found an unknown key 'capcity', expected one of the format's keys (did you mean capacity?)",
    ),
]

WORKLOADS = [
    (
        "throughputs",
        {"ResNet-18/64": {"v100": 1}},
        "throughputs.ResNet-18/64: found a second throughput, expected none, as workloads gives one",
    ),
    (
        "throughputs",
        {"new": {"p100": 1}},
        "throughputs.new.p100: found no pool or GPU type of the cluster, expected one of v100, k80, V100-SXM2-16GB",
    ),
    ("workloads", [], "found [], expected an object"),
    (
        "workloads.ResNet-18/64.demands",
        {},
        "found an unknown key 'demands', expected one of the format's keys (did you mean demand?)",
    ),
    (
        "workloads.ResNet-18/64.demand.gpu",
        1,
        "found an unknown resource, expected one of cpu, memory, budget",
    ),
    (
        "workloads.ResNet-18/64.demand.budget",
        1,
        "found a consumable resource, expected a renewable one (an option's uses can consume)",
    ),
    ("workloads.ResNet-18/64.demand.cpu", -3, "found -3, expected a number of at least 0"),
    ("workloads.ResNet-18/64.gpu_memory", NAN, "found NaN, expected a finite number"),
    ("workloads.ResNet-18/64.parameters", [], "found [], expected an object"),
    ("workloads.ResNet-18/64.parameters.x", {1: 2}, "found 1, expected text as the key"),
    ("workloads.ResNet-18/64.parameters.x", NAN, "found NaN, expected a finite number"),
    ("workloads.", {}, 'workloads: found "" as a key, expected a non-empty text as the key'),
    (
        "workloads.LM/20.throughput",
        3.0,
        'found 3.0, expected an object such as {"v100": 40.2} (rates by pool or GPU type)',
    ),
    (
        "workloads.LM/20.throughput.p100",
        3.0,
        "found no pool or GPU type of the cluster, expected one of v100, k80, V100-SXM2-16GB",
    ),
    (
        "workloads.LM/20.throughput.v100",
        -1,
        "found -1, expected a finite rate in steps/s, at least 0",
    ),
    (
        "workloads.LM/20.throughput.v100",
        NAN,
        "found NaN, expected a finite rate in steps/s, at least 0",
    ),
    (
        "workloads.LM/20.throughput.v100",
        INF,
        "found Infinity, expected a finite rate in steps/s, at least 0",
    ),
    (
        "workloads.LM/20.throughput.v100",
        "fast",
        'found "fast", expected a finite rate in steps/s, at least 0',
    ),
    (
        "workloads.LM/20.throughput.v100",
        True,
        "found true, expected a finite rate in steps/s, at least 0",
    ),
    (
        "workloads.LM/20.throughput.v100",
        None,
        "found null, expected a finite rate in steps/s, at least 0",
    ),
    (
        "workloads.LM/20.throughput.v100",
        10**400,
        "found 100000000000000000000000000000000000000000000000000000000..., expected a finite rate in "
        "steps/s, at least 0",
    ),
    (
        "workloads.LM/20.throughput.v100",
        {"0": 1},
        'found "0", expected a whole number of GPUs, at least 1, as the key',
    ),
    (
        "workloads.LM/20.throughput.v100",
        {"01": 1},
        'found "01", expected a whole number of GPUs, at least 1, as the key',
    ),
    (
        "workloads.LM/20.throughput.v100",
        {"two": 1},
        'found "two", expected a whole number of GPUs, at least 1, as the key',
    ),
    (
        "workloads.LM/20.throughput.v100",
        {"٢": 1},
        'found "٢", expected a whole number of GPUs, at least 1, as the key',
    ),
    (
        "workloads.LM/20.throughput.v100",
        {"2": {"3": 1}},
        'workloads.LM/20.throughput.v100.2: found "3", expected at most 2 nodes, as the key',
    ),
    (
        "workloads.LM/20.throughput.v100",
        {"2": {"1": {}}},
        "workloads.LM/20.throughput.v100.2.1: found {}, expected a finite rate in steps/s, at least 0",
    ),
]

TENANTS = [
    (
        "tenants.+",
        {"name": "vision"},
        'tenants[1].name: found "vision" a second time, expected names that differ',
    ),
    ("tenants.0.weight", 0, "found 0, expected a number above 0"),
    ("tenants.0.policy", "lottery", "found \"lottery\", expected one of 'fairness' or 'fifo'"),
    (
        "tenants.0.polcy",
        "fifo",
        "found an unknown key 'polcy', expected one of the format's keys (did you mean policy?)",
    ),
    ("tenants", {"vision": {}}, 'found {"vision": {}}, expected a list'),
]

JOBS = [
    ("jobs", ..., "found nothing, expected a list of jobs"),
    ("jobs", None, "found null, expected a list of jobs"),
    ("jobs", {"a": {}}, 'found {"a": {}}, expected a list of jobs'),
    ("jobs", "a", 'found "a", expected a list of jobs'),
    ("jobs.0", 7, "found 7, expected an object"),
    ("jobs.0", ["a"], 'found ["a"], expected an object'),
    ("jobs.+", {}, "jobs[2].id: found nothing, expected this key"),
    ("jobs.1.id", "a", 'found "a" a second time, expected ids that differ'),
    ("jobs.0.id", "", 'found "", expected a non-empty text'),
    ("jobs.0.id", 3, "found 3, expected text"),
    (
        "jobs.0.step",
        1,
        "found an unknown key 'step', expected one of the format's keys (did you mean steps?)",
    ),
    (
        "jobs.0.history.isolatd_time",
        1,
        "found an unknown key 'isolatd_time', expected one of the format's keys (did you mean isolated_time?)",
    ),
    (
        "jobs.1.gpus.maximum",
        1,
        "found an unknown key 'maximum', expected one of the format's keys (did you mean max?)",
    ),
    ("jobs.0.gpus", 0, "found 0, expected a number of at least 1"),
    ("jobs.0.gpus", -1, "found -1, expected a number of at least 1"),
    ("jobs.0.gpus", 1.5, "found 1.5, expected a whole number"),
    ("jobs.0.gpus", True, "found true, expected a whole number"),
    ("jobs.0.gpus", None, "found null, expected a whole number"),
    ("jobs.0.gpus", "1", 'found "1", expected a whole number'),
    (
        "jobs.0.gpus",
        10**30,
        "found 1000000000000000000000000000000, expected a number of at most 2147483648",
    ),
    ("jobs.0.gpus", {"min": 1}, "jobs[0].gpus.max: found nothing, expected this key"),
    (
        "jobs.0.gpus",
        [1, 8],
        'found [1, 8], expected a whole number, or a range such as {"min": 1, "max": 8}',
    ),
    (
        "jobs.0.gpus",
        {"min": 1, "max": 2},
        'jobs[0].throughput: found a plain number in an elastic job (job "a"), expected rates by GPU '
        'count such as {"1": 9}',
    ),
    ("jobs.1.gpus.min", 9, "jobs[1].gpus: found min 9 above max 8, expected min at most max"),
    (
        "jobs.1.gpus.min",
        2,
        "jobs[1].gpus.levels: found [1, 2, 4, 8], expected different counts from 2 to 8",
    ),
    (
        "jobs.1.gpus.max",
        4,
        "jobs[1].gpus.levels: found [1, 2, 4, 8], expected different counts from 1 to 4",
    ),
    ("jobs.1.gpus.levels", [1, 1], "found [1, 1], expected different counts from 1 to 8"),
    ("jobs.1.gpus.levels", [], "found [], expected at least 1 entry"),
    ("jobs.1.gpus.levels", [1, 1.5], "jobs[1].gpus.levels[1]: found 1.5, expected a whole number"),
    ("jobs.1.gpus.levels", 4, "found 4, expected a list"),
    ("jobs.0.steps", -1, "found -1, expected a number of at least 0"),
    ("jobs.0.steps", NAN, "found NaN, expected a finite number"),
    ("jobs.0.steps", INF, "found Infinity, expected a finite number"),
    ("jobs.0.steps", "many", 'found "many", expected a number'),
    ("jobs.0.steps", None, "found null, expected a number"),
    ("jobs.0.steps", False, "found false, expected a number"),
    (
        "jobs.0.steps",
        10**400,
        "found 100000000000000000000000000000000000000000000000000000000..., expected a finite number",
    ),
    ("jobs.0.steps_done", -1, "found -1, expected a number of at least 0"),
    ("jobs.0.weight", 0, "found 0, expected a number above 0"),
    ("jobs.0.weight", -2, "found -2, expected a number above 0"),
    ("jobs.0.arrival", INF, "found Infinity, expected a finite number"),
    (
        "jobs.0.deadline",
        -1,
        'found -1, before the arrival 0 (job "a"), expected a deadline not before the arrival',
    ),
    ("jobs.0.deadline", "2h", 'found "2h", expected a number of seconds'),
    ("jobs.0.deadline_kind", "soon", "found \"soon\", expected one of 'hard' or 'soft'"),
    ("jobs.0.preemptible", 1, "found 1, expected true or false"),
    ("jobs.0.restart_cost", -30, "found -30, expected a number of at least 0"),
    ("jobs.0.history", 60, "found 60, expected an object"),
    ("jobs.0.history.isolated_time", -1, "found -1, expected a number of at least 0"),
    (
        "jobs.+",
        {"id": "c"},
        "jobs[2]: found no workload, throughput or options, expected one of them",
    ),
    (
        "jobs.+",
        {"id": "c", "workload": "BERT"},
        'jobs[2].workload: found "BERT", expected one of the workloads, or a throughput of the job\'s own',
    ),
    (
        "jobs.0.throughput",
        [1],
        'found [1], expected an object such as {"v100": 40.2} (rates by pool or GPU type)',
    ),
    (
        "jobs.0.throughput.p100",
        1,
        "found no pool or GPU type of the cluster, expected one of v100, k80, V100-SXM2-16GB",
    ),
    (
        "jobs.0.throughput.v100",
        {"1": NAN},
        "jobs[0].throughput.v100.1: found NaN, expected a finite rate in steps/s, at least 0",
    ),
]

REFERENCES = [
    ("jobs.0.tenant", "audio", 'found "audio", expected one of the tenants vision'),
    ("jobs.0.after", ["z"], 'jobs[0].after[0]: found "z", expected the id of another job'),
    ("jobs.0.after", ["a"], "found a cycle (a after a), expected precedences without cycles"),
    ("jobs.0.after", "b", 'found "b", expected a list'),
    ("jobs.0.after", [1], "jobs[0].after[0]: found 1, expected text"),
    ("jobs.0.running", {"pool": "v100"}, "jobs[0].running.gpus: found nothing, expected this key"),
    (
        "jobs.0.running",
        {"pool": "p100", "gpus": ["v100-0/0"]},
        'jobs[0].running.pool: found "p100", expected one of the pools v100, k80',
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": []},
        "jobs[0].running.gpus: found [], expected at least 1 entry",
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": ["v100-0/4"]},
        'jobs[0].running.gpus[0]: found "v100-0/4", expected a GPU of pool "v100" written node/index',
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": ["v100-2/0"]},
        'jobs[0].running.gpus[0]: found "v100-2/0", expected a GPU of pool "v100" written node/index',
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": ["k80-0/0"]},
        'jobs[0].running.gpus[0]: found "k80-0/0", expected a GPU of pool "v100" written node/index',
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": ["v100-0"]},
        'jobs[0].running.gpus[0]: found "v100-0", expected a GPU of pool "v100" written node/index',
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": ["v100-0/-1"]},
        'jobs[0].running.gpus[0]: found "v100-0/-1", expected a GPU of pool "v100" written node/index',
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": ["v100-0/00"]},
        'jobs[0].running.gpus[0]: found "v100-0/00", expected a GPU of pool "v100" written node/index',
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": ["v100-0/0", "v100-0/0"]},
        'jobs[0].running.gpus: found ["v100-0/0", "v100-0/0"], expected each GPU once',
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": ["v100-0/0"], "since": NAN},
        "jobs[0].running.since: found NaN, expected a finite number",
    ),
    (
        "jobs.0.running",
        {"pool": "v100", "gpus": ["v100-0/0"], "node": 1},
        "jobs[0].running.node: found an unknown key 'node', expected one of the format's keys",
    ),
]

OPTIONS = [
    (
        "jobs.1.options.0.througput",
        1,
        "found an unknown key 'througput', expected one of the format's keys (did you mean throughput?)",
    ),
    ("jobs.1.options", [], "found [], expected at least 1 entry"),
    ("jobs.1.options", {}, "found {}, expected a list"),
    ("jobs.1.options.0.pool", "p100", 'found "p100", expected one of the pools v100, k80'),
    ("jobs.1.options.0.gpus", -1, "found -1, expected a number of at least 0"),
    (
        "jobs.1.options.0.pool",
        None,
        "jobs[1].options[0].gpus: found 2 without a pool, expected 0 GPUs, or the pool they are of",
    ),
    (
        "jobs.1.options.0",
        {"pool": "v100"},
        "jobs[1].options[0].gpus: found 0 and neither throughput nor duration, expected GPUs of the pool",
    ),
    (
        "jobs.1.options.0",
        {"uses": {"cpu": 1}},
        "jobs[1].options[0].uses: found cpu or memory without a pool, expected resources of the cluster",
    ),
    (
        "jobs.1.options.0.uses.gpus",
        1,
        "found an unknown resource, expected one of cpu, memory, budget",
    ),
    ("jobs.1.options.0.uses.cpu", -1, "found -1, expected a number of at least 0"),
    ("jobs.1.options.0.nodes", 3, "found 3, expected at most the option's 2 GPUs"),
    ("jobs.1.options.0.nodes", 0, "found 0, expected a number of at least 1"),
    ("jobs.1.options.0.share", 0, "found 0, expected a number above 0"),
    ("jobs.1.options.0.share", 1.5, "found 1.5, expected a number of at most 1"),
    ("jobs.1.options.0.share", NAN, "found NaN, expected a finite number"),
    ("jobs.1.options.0.duration", 0, "found 0, expected a number above 0"),
    ("jobs.1.options.0.throughput", -1, "found -1, expected a number of at least 0"),
    ("jobs.1.options.0.value", NAN, "found NaN, expected a finite number"),
    ("jobs.1.options.0.attributes", [], "found [], expected an object"),
    (
        "jobs.1.options.0.attributes.x",
        {1},
        "found {1}, expected plain data: text, a number, true, false, null, a list or an object",
    ),
]

COLOCATION = [
    ("colocation", {}, "found {}, expected a list"),
    (
        "colocation.0.workload",
        ["a"],
        "found an unknown key 'workload', expected one of the format's keys (did you mean workloads?)",
    ),
    (
        "colocation.0.workloads",
        ...,
        "colocation[0]: found neither of workloads and jobs, expected exactly one of them",
    ),
    (
        "colocation.0.jobs",
        ["a", "b"],
        "colocation[0]: found both of workloads and jobs, expected exactly one of them",
    ),
    (
        "colocation.0.workloads",
        ["LM/20"],
        "colocation[0].workloads[1]: found nothing, expected an entry",
    ),
    (
        "colocation.0.workloads",
        ["LM/20", "BERT"],
        'colocation[0].workloads[1]: found "BERT", expected the name of a workload',
    ),
    ("colocation.1.jobs", ["a", "z"], 'colocation[1].jobs[1]: found "z", expected the id of a job'),
    ("colocation.1.jobs", ["a", "a"], 'found "a" twice, expected two different jobs'),
    ("colocation.1.jobs", ["a", "b", "a"], 'found ["a", "b", "a"], expected exactly 2 entries'),
    ("colocation.1.jobs", "ab", 'found "ab", expected a list'),
    ("colocation.1.pool", "p100", 'found "p100", expected one of the pools v100, k80'),
    ("colocation.1.pool", ..., "found nothing, expected this key"),
    ("colocation.1.gpus", 0, "found 0, expected a number of at least 1"),
    ("colocation.1.gpus", 2, 'found 2, expected a count that job "a" may have, 1'),
    ("colocation.1.nodes", 2, "found 2, expected at most the entry's 1 GPUs"),
    ("colocation.1.throughput", ..., "found nothing, expected this key"),
    (
        "colocation.1.throughput",
        [1],
        "colocation[1].throughput[1]: found nothing, expected an entry",
    ),
    (
        "colocation.1.throughput",
        [1, -1],
        "colocation[1].throughput[1]: found -1, expected a number of at least 0",
    ),
    (
        "colocation.1.throughput",
        [1, NAN],
        "colocation[1].throughput[1]: found NaN, expected a finite number",
    ),
    ("colocation.1.throughput", 1, "found 1, expected a list"),
    (
        "colocation.+",
        {"jobs": ["b", "a"], "pool": "v100", "throughput": [1, 1]},
        "colocation[2]: found a second entry for the same pair, pool, gpus and nodes, expected one entry",
    ),
]

TOPOLOGY = [
    ("cluster.topology", [], "found [], expected an object"),
    ("cluster.topology", 5, "found 5, expected an object"),
    (
        "cluster.topology.node",
        [],
        "found an unknown key, expected networkx node-link JSON (nodes, links)",
    ),
    ("cluster.topology.nodes", ..., "found nothing, expected a list of nodes with ids"),
    ("cluster.topology.nodes", {}, "found {}, expected a list of nodes with ids"),
    ("cluster.topology.links", ..., "found nothing, expected a list of links"),
    ("cluster.topology.links", None, "found null, expected a list of links"),
    (
        "cluster.topology.edges",
        [],
        "cluster.topology: found both links and edges, expected one of them",
    ),
    ("cluster.topology.directed", "yes", 'found "yes", expected true or false'),
    ("cluster.topology.multigraph", 1, "found 1, expected true or false"),
    ("cluster.topology.graph", [], "found [], expected an object"),
    ("cluster.topology.nodes.0", 3, 'found 3, expected an object with an "id"'),
    ("cluster.topology.nodes.0", {}, 'found {}, expected an object with an "id"'),
    (
        "cluster.topology.nodes.0.id",
        None,
        'cluster.topology.nodes[0]: found {"id": null}, expected an object with an "id"',
    ),
    (
        "cluster.topology.nodes.0.id",
        [1],
        'cluster.topology.nodes[0]: found {"id": [1]}, expected an object with an "id"',
    ),
    (
        "cluster.topology.nodes.1.id",
        "v100-0",
        'found "v100-0" a second time, expected ids that differ',
    ),
    (
        "cluster.topology.links.0",
        3,
        "found 3, expected an object with source, target and bandwidth",
    ),
    (
        "cluster.topology.links.0.source",
        "x",
        'found "x", expected the id of one of the topology\'s nodes',
    ),
    (
        "cluster.topology.links.0.target",
        ...,
        "found nothing, expected the id of one of the topology's nodes",
    ),
    (
        "cluster.topology.links.0.target",
        [1],
        "found [1], expected the id of one of the topology's nodes",
    ),
    (
        "cluster.topology.links.0.bandwidth",
        0,
        "found 0, expected a finite bandwidth in GB/s above 0",
    ),
    (
        "cluster.topology.links.0.bandwidth",
        -1,
        "found -1, expected a finite bandwidth in GB/s above 0",
    ),
    ("cluster.topology.links.0.bandwidth", NAN, "found NaN, expected a finite number"),
    (
        "cluster.topology.links.0.bandwidth",
        "fast",
        'found "fast", expected a finite bandwidth in GB/s above 0',
    ),
    (
        "cluster.topology.links.0.bandwidth",
        True,
        "found true, expected a finite bandwidth in GB/s above 0",
    ),
    ("cluster.topology.links.0.key", [1], "found [1], expected text or a whole number"),
    ("cluster.topology.nodes.0.x", {1: 1}, "found 1, expected text as the key"),
]

ONE_ENTRY = [
    *HEADER,
    *POOLS,
    *RESOURCES,
    *WORKLOADS,
    *TENANTS,
    *JOBS,
    *REFERENCES,
    *OPTIONS,
    *COLOCATION,
]


def full(path: str, message: str) -> str:
    """The message with its path as it is told: ``jobs.0.steps`` is ``jobs[0].steps``."""
    where = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", path)
    return f"{where}: {message}" if message.startswith("found ") else message


def kind_of(value: object) -> str:
    return type(value).__name__


def name_of(value: object) -> str | None:
    """Test ids: short texts as they are, long ones cut."""
    if value is ...:
        return "nothing"
    return (
        str(value)[:40]
        if isinstance(value, str | int | float | list | dict) or value is None
        else None
    )


@pytest.mark.parametrize(("path", "value", "message"), ONE_ENTRY, ids=name_of)
def test_refused_with_path_found_and_expected(
    two_types: Document, edit: Edit, refusal: Refusal, path: str, value: Any, message: str
) -> None:
    assert stated(full(path, message)).holds(refusal(edit(two_types, path, value)))


@pytest.mark.parametrize(("path", "value", "message"), TOPOLOGY, ids=name_of)
def test_topology_refused(
    two_types: Document, edit: Edit, refusal: Refusal, path: str, value: Any, message: str
) -> None:
    two_types["cluster"]["topology"] = {
        "nodes": [{"id": "v100-0"}, {"id": "leaf"}],
        "links": [{"source": "v100-0", "target": "leaf", "bandwidth": 12.5}],
    }
    Instance.from_document(two_types)  # good before the edit
    assert stated(full(path, message)).holds(refusal(edit(two_types, path, value)))


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({}, "nothing"),
        ({"jobs": []}, "nothing"),
        ({"format": "optsched-solution/1"}, '"optsched-solution/1"'),
    ],
)
def test_format_comes_first(refusal: Refusal, document: Document, found: str) -> None:
    assert stated(f'format: found {found}, expected "optsched-instance/1"...').holds(
        refusal(document)
    )


def test_other_documents_are_told_apart() -> None:
    with refuses(
        'format: found "optsched-round/1", expected "optsched-instance/1" (this is a state: ...'
    ):
        optsched.load({"format": "optsched-round/1"})


@pytest.mark.parametrize(
    ("document", "found"), [([], "[]"), (5, "5"), ("a", '"a"'), (None, "null"), ([{}], "[{}]")]
)
def test_not_an_object(refusal: Refusal, document: object, found: str) -> None:
    assert stated(f'found {found}, expected an object with "format": "optsched-instance/1"').holds(
        refusal(document)
    )


def test_error_has_its_three_parts(two_types: Document, edit: Edit) -> None:
    with pytest.raises(InvalidInput) as caught:
        Instance.from_document(edit(two_types, "jobs.1.steps", -1))
    assert (caught.value.path, caught.value.found) == ("jobs[1].steps", "-1")
    assert caught.value.expected == "a number of at least 0"
    assert caught.value.exit_code == 3


def test_late_chunk_has_the_number_in_the_file(two_types: Document, refusal: Refusal) -> None:
    two_types["jobs"] += [{"id": f"x{i}", "throughput": {"v100": 1.0}} for i in range(9000)]
    two_types["jobs"][8500]["weight"] = 0
    assert stated("jobs[8500].weight: found 0, expected a number above 0").holds(refusal(two_types))
    two_types["jobs"][8500] = {"id": "x3", "throughput": {"v100": 1.0}}
    assert stated('jobs[8500].id: found "x3" a second time, expected ids that differ').holds(
        refusal(two_types)
    )


def test_colocated_jobs_can_have_the_count(
    two_types: Document, edit: Edit, refusal: Refusal
) -> None:
    edit(two_types, "jobs.0", {"id": "a", "gpus": {"min": 1, "max": 5}, "throughput": {}})
    Instance.from_document(edit(two_types, "colocation.1.gpus", 4))
    message = 'colocation[1].gpus: found {}, expected a count that job "{}" may have, {}'
    assert stated(message.format(3, "b", "[1, 2, 4, 8]")).holds(
        refusal(edit(two_types, "colocation.1.gpus", 3))
    )
    assert stated(message.format(8, "a", "1 to 5")).holds(
        refusal(edit(two_types, "colocation.1.gpus", 8))
    )


def test_cycle_over_several_jobs(two_types: Document, refusal: Refusal) -> None:
    def chain(length: int) -> list[Document]:
        ids = [f"c{i}" for i in range(length)]
        return [
            {"id": job, "throughput": {"v100": 1}, "after": [before]}
            for job, before in zip(ids, [*ids[1:], ids[0]], strict=True)
        ]

    two_types["colocation"] = []
    two_types["jobs"] = chain(3)
    assert stated("jobs[0].after: found a cycle (c0 after c1 after c2 after c0)").holds(
        refusal(two_types)
    )
    two_types["jobs"] = chain(5000)
    assert stated(
        "jobs[0].after: found a cycle (c0 after c1 after c2 after ... after c0)..."
    ).holds(refusal(two_types))


def test_cycle_is_told_from_its_own_start(two_types: Document, refusal: Refusal) -> None:
    two_types["colocation"] = []
    two_types["jobs"] = [
        {"id": job, "throughput": {"v100": 1}, "after": after}
        for job, after in {"x": ["p"], "p": ["q", "r"], "q": [], "r": ["p"]}.items()
    ]
    assert stated(
        "jobs[1].after: found a cycle (p after r after p), expected precedences without cycles"
    ).holds(refusal(two_types))


def test_diamond_and_repeated_predecessors_are_no_cycle(two_types: Document) -> None:
    two_types["colocation"] = []
    two_types["jobs"] = [
        {"id": job, "throughput": {"v100": 1}, "after": after}
        for job, after in {"d": ["b", "c", "b"], "b": ["a"], "c": ["b", "a"], "a": []}.items()
    ]
    table = Instance.from_document(two_types).jobs_table
    assert table.after == {0: (1, 2, 1), 1: (3,), 2: (1, 3)}


@pytest.mark.parametrize("order", [1, -1])
def test_a_label_of_another_job_defines_no_workload(
    two_types: Document, refusal: Refusal, order: int
) -> None:
    labelled = {"id": "c", "workload": "BERT", "throughput": {"v100": 1}}
    two_types["jobs"] += [labelled, {"id": "d", "workload": "BERT"}][::order]
    row = 3 if order == 1 else 2
    assert stated(
        f'jobs[{row}].workload: found "BERT", expected one of the workloads, or...'
    ).holds(refusal(two_types))


@pytest.mark.parametrize("field", ["steps", "gpus", "deadline", "weight", "throughput.v100"])
@pytest.mark.parametrize(
    "value", [16**5000, -(16**5000), "x" * 10**5, ["y"] * 10**4, {"k" * 500: 1}], ids=kind_of
)
def test_long_values_are_cut(
    two_types: Document, edit: Edit, refusal: Refusal, field: str, value: object
) -> None:
    assert stated(f"jobs[0].{field}...").holds(refusal(edit(two_types, f"jobs.0.{field}", value)))


OBJECTS = [
    *(
        "",
        "cluster",
        "cluster.pools.0",
        "cluster.pools.0.bandwidth",
        "throughputs",
        "workloads.ResNet-18/64",
        "jobs.0",
    ),
    *(
        "workloads.ResNet-18/64.throughput",
        "workloads.ResNet-18/64.demand",
        "jobs.0.throughput",
        "jobs.1.gpus",
    ),
    "jobs.1.options.0.uses",
]
AWKWARD = [
    "x" * 1000,
    "two\nlines",
    "\x1b[31m",
    "\u2028\x85",
    "\ud800",
    "<gang>",
    "<odd",
    "[key]",
    "a.b[3]",
    "{}",
    "%s",
]


@pytest.mark.parametrize("name", AWKWARD, ids=lambda name: ascii(name[:12]))
def test_awkward_keys(two_types: Document, edit: Edit, refusal: Refusal, name: str) -> None:
    for path in OBJECTS:
        document = copy.deepcopy(two_types | {"throughputs": {}})
        place: Any = document
        for part in path.split(".") if path else []:
            place = place[int(part)] if isinstance(place, list) else place[part]
        place[name] = -1
        refusal(document)  # checks the length and the single line


@pytest.mark.parametrize("name", AWKWARD, ids=lambda name: ascii(name[:12]))
def test_awkward_names(two_types: Document, edit: Edit, refusal: Refusal, name: str) -> None:
    two_types["jobs"][0] |= {"running": {"pool": "v100", "gpus": ["v100-0/0"]}, "after": ["b"]}
    for path in (
        "jobs.0.tenant",
        "jobs.0.running.pool",
        "jobs.0.after.0",
        "colocation.0.pool",
        "colocation.1.jobs.0",
    ):
        error = refusal(edit(copy.deepcopy(two_types), path, name))
        assert stated(full(path, "found ") + "...").holds(error)


def test_many_names_are_cut(two_types: Document, edit: Edit, refusal: Refusal) -> None:
    two_types["cluster"]["pools"] += [
        {"name": f"pool{i}", "nodes": 1, "gpus_per_node": 1} for i in range(500)
    ]
    two_types["tenants"] += [{"name": f"tenant{i}"} for i in range(500)]
    two_types["cluster"]["resources"] += [
        {"name": f"resource{i}", "capacity": 1} for i in range(500)
    ]
    Instance.from_document(two_types)
    cases = {
        "jobs.0.tenant": "x",
        "colocation.0.pool": "x",
        "jobs.1.options.0.uses.x": 1,
        "jobs.0.throughput.x": 1,
    }
    for path, value in cases.items():
        error = refusal(edit(copy.deepcopy(two_types), path, value))
        assert error.expected.endswith("...")
        assert stated(full(path, "found ") + "...").holds(error)


@pytest.mark.parametrize("depth", [90, 110, 100_000])
def test_deep_free_content(two_types: Document, edit: Edit, depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    edit(two_types, "workloads.LM/20.parameters", {"x": value})
    if depth < 100:
        document = Instance.from_document(two_types).to_document()
        assert document["workloads"]["LM/20"]["parameters"] == {"x": value}
    else:
        with refuses("workloads.LM/20.parameters") as caught:
            Instance.from_document(two_types)
        assert caught.value.expected == "data nested at most 100 deep"


def test_endless_free_content(two_types: Document, edit: Edit, refusal: Refusal) -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    error = refusal(edit(two_types, "constraints", [{"kind": "budget", "limit": endless}]))
    assert stated("constraints[0].limit: found ...").holds(error)


@pytest.mark.parametrize("value", [b"x", {1, 2}, 3j, object(), range(3), lambda: 1], ids=kind_of)
@pytest.mark.parametrize(
    "path",
    [
        "workloads.ResNet-18/64.parameters.x",
        "jobs.1.options.0.attributes.x",
        "performance.x",
        "cluster.topology",
        "jobs",
    ],
)
def test_values_that_no_file_holds(
    two_types: Document, edit: Edit, refusal: Refusal, path: str, value: object
) -> None:
    refusal(edit(two_types, path, value))


@pytest.mark.parametrize(
    "path", ["name", "jobs.0.id", "workloads.ResNet-18/64.parameters.x", "cluster.pools.0.gpu"]
)
def test_half_of_a_surrogate_pair(
    two_types: Document, edit: Edit, refusal: Refusal, path: str
) -> None:
    error = refusal(edit(two_types, path, "\ud800"))
    assert (error.found, error.expected) == ('"\\ud800"', "text in Unicode")


def wrong_paths(document: Document) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        Instance.from_document(document)
    return [one.path for one in caught.value.one_by_one()]


def test_all_wrong_values_are_told_at_once() -> None:
    pool: Document = {"name": "p", "nodes": 1, "gpus_per_node": 4}
    jobs: list[Any] = [
        {"id": "a", "throughput": {"p": 1}, "step": 4},
        {"id": "b", "throughput": {"p": 1}, "steps": -1, "weight": "x"},
        5,
        {"id": "d", "workload": "nobody's"},
        {"id": "e", "throughput": {"p": 1}, "arrival": 5, "deadline": 3},
    ]
    fields = ["jobs[0].step", "jobs[1].steps", "jobs[1].weight", "jobs[2]"]
    assert wrong_paths(instance_document([pool], jobs)) == [
        *fields, "jobs[3].workload", "jobs[4].deadline",
    ]  # fmt: skip
    # What jobs say of other objects cannot be checked where those are wrong
    broken = pool | {"nodes": "x", "gpu_memory": -1}
    assert wrong_paths(instance_document([broken], jobs)) == [
        "cluster.pools[0].nodes", "cluster.pools[0].gpu_memory", *fields,
    ]  # fmt: skip


def test_a_name_that_comes_twice_is_told_beside_other_errors() -> None:
    pool = {"name": "p", "nodes": 1, "gpus_per_node": 4}
    good = {"id": "a", "throughput": {"p": 1}}
    jobs = [good, good, good | {"id": "b", "tenant": "nobody"}]
    assert wrong_paths(instance_document([pool], jobs)) == ["jobs[1].id", "jobs[2].tenant"]


def test_a_document_that_is_wrong_everywhere() -> None:
    pool = {"name": "p", "nodes": 1, "gpus_per_node": 4}
    jobs = [{"id": str(row), "workload": "x"} for row in range(9000)]
    with pytest.raises(InvalidInput) as caught:
        Instance.from_document(instance_document([pool], jobs))
    *lines, end = str(caught.value).splitlines()
    assert (len(lines), end) == (20, "and at least 980 more")
    # An error in a later piece has the number of its job
    jobs = [{"id": str(row), "throughput": {"p": 1}} for row in range(9000)]
    jobs[8500]["after"] = jobs[8999]["weight"] = "x"
    assert wrong_paths(instance_document([pool], jobs)) == ["jobs[8500].after", "jobs[8999].weight"]


def test_errors_inside_a_state_have_its_paths() -> None:
    document = optsched.RoundState.first(optsched.load("@quickstart")).to_document()
    jobs = copy.deepcopy(document["instance"]["jobs"])
    jobs[0]["steps"] = jobs[1]["steps"] = -1
    document["instance"] = document["instance"] | {"jobs": jobs}
    with refuses("instance.jobs[0].steps: found -1...") as caught:
        optsched.RoundState.from_document(document)
    assert isinstance(caught.value, InvalidInput)
    assert [one.path for one in caught.value.others] == ["instance.jobs[1].steps"]


def test_nodes_and_gpus_are_counted_over_all_pools() -> None:
    pools = [{"name": f"p{row}", "nodes": 10**7, "gpus_per_node": 1} for row in range(40)]
    with pytest.raises(InvalidInput) as told:
        build_instance(instance_document(pools))
    assert told.value.path == "cluster.pools[1].nodes"
    assert told.value.expected == "at most 10 million nodes and 100 million GPUs in all"


def test_a_file_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "LARGEST", 1000)
    file = tmp_path / "long.json"
    file.write_bytes(b" " * 2000)
    with refuses("long.json: found more than 1,000 bytes, expected a smaller file"):
        optsched.load(file)
