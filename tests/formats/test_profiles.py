"""Profiles from files: what is read, from where it is told, and every wrong cell by file, line and column."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from refusals import refuses

from optsched.errors import InvalidInput, UsageError
from optsched.formats import read_profiles
from optsched.performance import Profiles

DATA = SHARED / "data"
PUBLIC = needs(DATA)
Put = Callable[..., Path]

OWN = """workload,gpu,gpus,nodes,samples,seconds,sync
bert,T4,1,1,8,0.2,0
bert,T4,4,2,8,0.3,0.1
gpt,A100,2,1,16.5,0.4,
"""


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def put(text: str, name: str = "profiles.csv") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return put


def rows(profiles: Profiles) -> list[tuple[Any, ...]]:
    ways = profiles.ways
    return [
        (ways.workloads[w], ways.gpu_types[g], k, n, m, t)
        for w, g, k, n, m, t in zip(
            ways.workload,
            ways.gpu,
            ways.gpus,
            ways.nodes,
            ways.samples,
            profiles.seconds,
            strict=True,
        )
    ]


# --- what is read --------------------------------------------------------------------------------------------------


def test_our_own_columns(put: Put) -> None:
    profiles = read_profiles(put(OWN))
    assert rows(profiles) == [
        ("bert", "T4", 1, 1, 8, 0.2), ("bert", "T4", 4, 2, 8, 0.3), ("gpt", "A100", 2, 1, 16.5, 0.4)
    ]  # fmt: skip
    assert profiles.sync.tolist()[:2] == [0, 0.1] and np.isnan(profiles.sync[2])
    assert profiles.ways.passes.tolist() == [1, 1, 1]


def test_synonyms_semicolons_and_passes(put: Put) -> None:
    text = "local_bsz;step_time;num_gpus;num_nodes;gpu_type;workload;passes\n4;1.5;8;2;A100;x;3\n"
    profiles = read_profiles(put(text))
    assert rows(profiles) == [("x", "A100", 8, 2, 4, 1.5)]
    assert profiles.ways.passes.tolist() == [3]


def test_rates_stand_where_times_do(put: Put) -> None:
    """The table of rates of the README, and rates of steps whose samples are told."""
    text = (
        "workload,pool,gpus,throughput\nnet,v100,,4\nnet,k80,1,0\nbert,v100,2,40\nbert,v100,8,100\n"
    )
    assert rows(read_profiles(put(text), gpus_per_node=4)) == [
        ("net", "v100", 1, 1, 1, 0.25), ("bert", "v100", 2, 1, 0.5, 0.025), ("bert", "v100", 8, 2, 0.125, 0.01),
    ]  # fmt: skip
    told = put("workload,gpu,gpus,nodes,samples,passes,throughput\nnet,T4,2,1,32,3,0.5\n")
    assert rows(read_profiles(told)) == [("net", "T4", 2, 1, 32, 2.0)]
    whole = put("workload,gpu,gpus,nodes,batch,passes,throughput\nnet,T4,2,1,192,3,0.5\n")
    assert rows(read_profiles(whole)) == [("net", "T4", 2, 1, 32, 2.0)]


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("workload,gpu,throughput,seconds\na,b,1,1\n", "1", "the columns seconds and throughput"),
        (
            "workload,gpu,throughput,samples,batch\na,b,1,1,1\n",
            "1",
            "the columns samples and batch",
        ),
        ("workload,gpu,throughput\na,b,-1\n", "2:throughput", '"-1"'),
    ],
)
def test_wrong_rates(put: Put, text: str, where: str, found: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_profiles(put(text))
    assert (caught.value.path.rpartition("profiles.csv:")[2], caught.value.found) == (where, found)


def test_files_of_adaptdl_name_workload_and_gpu_by_their_paths(put: Put, tmp_path: Path) -> None:
    put("placement,local_bsz,step_time,sync_time\n1,8,0.2,0\n44,8,0.3,0.1\n31,8,0.25,0.1\n22,8,0.5,0.1\n",
        "bert/placements-t4.csv")  # fmt: skip
    put(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,8,8,0.9,0\n3,8,8,0.4,0\n",
        "bert/scalability-t4.csv",
    )
    put("progress,iteration,metric,grad_sqr,grad_var\n1,1,2,3,4\n", "bert/validation-64.csv")
    first = read_profiles(tmp_path)
    assert rows(first) == [
        ("bert", "t4", 1, 1, 8, 0.2), ("bert", "t4", 8, 2, 8, 0.3), ("bert", "t4", 4, 2, 8, 0.25),
        ("bert", "t4", 8, 3, 8, 0.4),
    ]  # fmt: skip
    assert len(read_profiles(tmp_path, repeats="all")) == 6
    named = read_profiles(tmp_path / "bert" / "scalability-t4.csv", workload="x", gpu="y")
    assert (named.ways.workloads, named.ways.gpu_types) == (("x",), ("y",))


def test_repeated_measurements_of_our_own_are_all_kept(put: Put) -> None:
    path = put("workload,gpu,gpus,samples,seconds\nx,T4,1,8,0.2\nx,T4,1,8,0.3\n")
    assert len(read_profiles(path)) == 2
    assert read_profiles(path, repeats="first").seconds.tolist() == [0.2]


def test_several_files_are_one(put: Put) -> None:
    both = read_profiles([put(OWN), put(OWN.replace("bert", "resnet"), "other.csv")])
    assert both.ways.workloads == ("bert", "gpt", "resnet") and len(both) == 6


def test_tables_of_elasticflow(put: Put, tmp_path: Path) -> None:
    put("global_batch_size,1,2,8\n64,4.0,5.0,0\n128,2.0,nan,\n", "throughputs_A100/vgg.csv")
    profiles = read_profiles(tmp_path, gpus_per_node=4)
    assert rows(profiles) == [
        ("vgg", "A100", 1, 1, 64, 0.25), ("vgg", "A100", 2, 1, 32, 0.2), ("vgg", "A100", 1, 1, 128, 0.5)
    ]  # fmt: skip
    assert read_profiles(tmp_path, gpus_per_node=1).ways.nodes.tolist() == [1, 2, 1]
    assert profiles.samples_per_second.tolist() == [256.0, 320.0, 256.0]


def test_tables_of_gavel(put: Put) -> None:
    table = {
        "v100": {
            "('LM (batch size 20)', 1)": {"null": 50.0, "('LM (batch size 20)', 1)": [20.0, 20.0]},
            "('LM (batch size 20)', 4)": {"null": 160.0},
            "('A3C', 1)": {"null": 4.0},
            "('LM (batch size 80)', 1)": {"null": 0.0},
        },
        "v100_unconsolidated": {
            "('LM (batch size 20)', 1)": {"null": 50.0}, "('LM (batch size 20)', 4)": {"null": 80.0},
        },
    }  # fmt: skip
    path = put(json.dumps(table), "throughputs.json")
    expected = [
        ("LM", "V100", 1, 1, 20, 1 / 50), ("LM", "V100", 4, 1, 20, 4 / 160), ("A3C", "V100", 1, 1, 1, 0.25),
        ("LM", "V100", 4, 4, 20, 4 / 80),
    ]  # fmt: skip
    profiles = read_profiles(path)
    assert rows(profiles) == expected
    assert profiles.samples_per_second[0] == 50 * 20  # a rate is the sum over the workers
    assert read_profiles(path, gpus_per_node=2).ways.nodes.tolist() == [1, 2, 1, 4]


# --- what is wrong -------------------------------------------------------------------------------------------------

HEAD = "workload,gpu,gpus,nodes,samples,seconds,sync\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "profiles.csv: found an empty file, expected a first line with the columns, such as samples,seconds"),
        (HEAD, "profiles.csv: found no line below the first, expected at least one measurement"),
        ("workload,gpu,gpus,samples\na,b,1,2\n", "profiles.csv:1: found no column seconds"),
        ("workload,gpu,samples,seconds\na,b,1,2\n", "profiles.csv:1: found no column gpus, expected one (or plac..."),
        ("workload,gpu,gpus,nodes,colour,seconds\n", 'profiles.csv:1: found an unknown column "colour"'),
        ("gpu,gpus,samples,seconds\nb,1,2,3\n",
         "profiles.csv: found no column workload, expected one, a --workload..."),
        ("workload,gpus,samples,seconds\nb,1,2,3\n", "profiles.csv: found no column gpu, expected one, a --gpu..."),
        (HEAD + ",b,1,1,2,3,\n", "profiles.csv:2:workload: found nothing, expected one, a --workload..."),
        (HEAD + "a,b,1,1,2,0,\n", "profiles.csv:2:seconds: found 0.0, expected a time in seconds above 0"),
        (HEAD + "a,b,1,1,2,-3,\n", "profiles.csv:2:seconds: found -3.0, expected a time in seconds above 0"),
        (HEAD + "a,b,1,1,2,nan,\n", 'profiles.csv:2:seconds: found "nan", expected a number'),
        (HEAD + "a,b,1,1,2,fast,\n", 'profiles.csv:2:seconds: found "fast", expected a number'),
        (HEAD + "a,b,1,1,2,,\n", "profiles.csv:2:seconds: found nothing, expected a number"),
        (HEAD + "a,b,1,1,0,2,\n", "profiles.csv:2:samples: found 0.0, expected samples of one GPU in one pass..."),
        (HEAD + "a,b,0,1,2,3,\n", "profiles.csv:2:gpus: found 0, expected a whole number of GPUs, at least 1"),
        (HEAD + "a,b,99999999999999999999,1,2,3,\n", "profiles.csv:2:gpus: found 99999999999999999999"),
        (HEAD + "a,b,1,1,1e300,3,\n",
         "profiles.csv:2:samples: found 1e+300, expected samples of one GPU in one pass,..."),
        (HEAD + "a,b,1,1,2,1e-300,\n",
         "profiles.csv:2:seconds: found 1e-300, expected a time in seconds above 0: from 1e-30 to 1e+30"),
        (HEAD + "a\0,b,1,1,2,3,\n", "profiles.csv:2: found a null character, expected text in UTF-8 without..."),
        (HEAD + "a,b,1.5,1,2,3,\n", 'profiles.csv:2:gpus: found "1.5", expected a whole number'),
        (HEAD + "a,b,,1,2,3,\n", "profiles.csv:2:gpus: found nothing, expected a whole number of GPUs..."),
        (HEAD + "a,b,2,3,2,3,\n",
         "profiles.csv:2:nodes: found 3 nodes for 2 GPUs, expected at least one node, and at..."),
        (HEAD + "a,b,2,0,2,3,\n", "profiles.csv:2:nodes: found 0, expected at least one node..."),
        (HEAD + "a,b,2,,2,3,\n",
         "profiles.csv:2:nodes: found nothing, expected the nodes that these are spread over..."),
        ("workload,gpu,gpus,samples,seconds\na,b,2,2,3\n",
         "profiles.csv:2:nodes: found no column nodes for a step on 2 GPUs"),
        (HEAD + "a,b,2,1,2,0.3,120\n", "profiles.csv:2:sync: found 120 s of a step of 0.3 s, expected from 0 to..."),
        (HEAD + "a,b,2,1,2,0.3,1\n",
         "profiles.csv:2:sync: found 1 s of a step of 0.3 s, expected from 0 to the step's own seconds, "
         "in the same unit, or nothing where it was not measured"),
        (HEAD + "a,b,2,1,2,0.3,-1\n", "profiles.csv:2:sync: found -1 s of a step..."),
        (HEAD + "a,b,2,1,2\n", "profiles.csv:2: found 5 cells, expected 7, as in the first line"),
        ("placement,local_bsz,step_time\n40,8,1\n",
         'profiles.csv:2:placement: found "40", expected for each node one...'),
        ("placement,local_bsz,step_time\nxx,8,1\n",
         'profiles.csv:2:placement: found "xx", expected for each node one...'),
        ("placement,num_nodes,local_bsz,step_time\n4,1,8,1\n",
         "profiles.csv:1: found the columns num_nodes, placement, expected a..."),
        ("num_replicas,num_nodes,local_bsz,step_time\n4,5,8,1\n", "profiles.csv:2:num_nodes: found 5 nodes for 4 GPUs"),
        ("workload,gpu,gpus,samples,seconds,passes\na,b,1,2,3,0\n",
         "profiles.csv:2:passes: found 0, expected a whole..."),
        ("global_batch_size,1,two\n64,1,2\n", 'profiles.csv:1: found the column "two", expected numbers of GPUs...'),
        ("global_batch_size,1,2\n0,1,2\n", "profiles.csv:2:global_batch_size: found 0.0, expected samples above 0"),
        ("global_batch_size,1,2\n64,1,-2\n", 'profiles.csv:2:2: found "-2", expected iterations/s, or 0...'),
        ("global_batch_size,1,2\n64,1,x\n", 'profiles.csv:2:2: found "x", expected iterations/s, or 0...'),
        ("global_batch_size,1,2\n64,0,nan\n", "found no measurement in..."),
        ('{"v100": {"(\'LM\', 1)": {"null": -1}}}',
         "profiles.csv: throughputs.v100.('LM', 1).null: found -1, expected a finite..."),
    ],
)  # fmt: skip
def test_wrong_cells(put: Put, text: str, words: str) -> None:
    path = put(text)
    known = {} if "workload" in text or "found no col" in words else {"workload": "w"}
    given = {**known, **({} if "gpu," in text or "gpu" in words.split(",")[0] else {"gpu": "g"})}
    with refuses(words):
        read_profiles(path, **given)


def test_tables_that_lack_a_name_or_nodes(put: Put) -> None:
    path = put("global_batch_size,1,2\n64,1,2\n")
    with refuses(
        "profiles.csv: found no GPU type, expected a --gpu for all rows, or a folder such as..."
    ):
        read_profiles(path)
    with refuses("profiles.csv: found GPUs without their nodes, expected --gpus-per-node..."):
        read_profiles(path, gpu="T4")


@pytest.mark.parametrize(
    ("late", "told"),
    [
        (
            "a,b,1,1,16,300,",
            "profiles.csv:3:seconds: found 300 s, where profiles.csv:2:seconds has 0.2 s",
        ),
        (
            "a,b,1,1,4,180,",
            "profiles.csv:3:seconds: found 180 s, where profiles.csv:2:seconds has 0.2 s",
        ),
        (
            "a,b,4,1,8,400,",
            "profiles.csv:3:seconds: found 400 s, where profiles.csv:2:seconds has 0.2 s",
        ),
        (
            "a,b,1,1,8,0.0002,",
            "profiles.csv:2:seconds: found 0.2 s, where profiles.csv:3:seconds has 0.0002 s",
        ),
    ],
)
def test_milliseconds_beside_seconds(put: Put, late: str, told: str) -> None:
    path = put(f"{HEAD}a,b,1,1,8,0.2,\n{late}\n")
    with refuses(f"{told}, expected times in one unit..."):
        read_profiles(path)


def test_large_batches_and_other_workloads_may_take_long(put: Put) -> None:
    text = f"{HEAD}a,b,1,1,1,0.01,\na,b,1,1,100000,900,\nc,b,1,1,1,500,\n"
    assert len(read_profiles(put(text))) == 3


def test_wrong_words_and_files(put: Put, tmp_path: Path) -> None:
    with refuses("repeats: found 'last', expected first or all", UsageError):
        read_profiles(put(OWN), repeats="last")  # type: ignore[arg-type]
    with refuses("gpus_per_node: found 0", UsageError):
        read_profiles(put(OWN), gpus_per_node=0)
    with pytest.raises(UsageError, match="no profiles"):
        read_profiles([])
    with refuses("found no readable file at ..."):
        read_profiles(tmp_path / "nothing.csv")
    (tmp_path / "empty").mkdir()
    with refuses("found no CSV file in the folder..."):
        read_profiles(tmp_path / "empty")


# --- public data ---------------------------------------------------------------------------------------------------


@PUBLIC
def test_public_profiles_are_read_whole() -> None:
    sia = read_profiles(DATA / "sia/profiles/cifar10")
    assert len(sia) == 2090 and sia.ways.gpu_types == (
        "aws",
        "azure",
        "dgx-ext",
        "dgx",
        "quad",
        "rtx",
    )
    assert len(read_profiles(DATA / "sia/profiles/cifar10", repeats="all")) == 4464
    with refuses("placements-dgx-ext.csv:10:sync_time: found 0.28003 s of a step of 0.144..."):
        read_profiles(DATA / "sia/profiles/gpt_pmp")  # a pipeline: its times are those of a stage
    flow = read_profiles(
        [DATA / f"elasticflow/throughputs_{gpu}" for gpu in ("A100", "T4")], gpus_per_node=8
    )
    assert len(flow) == 169 and flow.ways.gpu_types == ("A100", "T4")
    gavel = read_profiles(DATA / "gavel/physical_cluster_throughputs.json")
    assert gavel.ways.gpu_types == ("K80", "P100", "V100") and len(gavel) == 410


def test_rates_without_nodes_are_of_one_node_and_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The table of rates that the README writes is a table of profiles, too."""
    path = tmp_path / "rates.csv"
    path.write_text("workload,pool,gpus,throughput\nResNet-50,v100,1,18.2\nBERT-base,v100,4,42\n")
    assert read_profiles(path).ways.nodes.tolist() == [1, 1]
    (record,) = caplog.records
    assert "rates.csv has no column nodes: jobs on up to 4 GPUs" in record.getMessage()
    assert read_profiles(path, gpus_per_node=2).ways.nodes.tolist() == [1, 2]
    assert len(caplog.records) == 1
