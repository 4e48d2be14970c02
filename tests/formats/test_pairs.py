"""Pairs from files: our own tables, Gavel's rates as flat tables and as JSON, and every wrong cell by its place."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from beside import SHARED
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.formats import read_pairs
from optsched.performance.learned import PairProfiles

DATA = SHARED / "data"
OWN = """gpu,first,second,fraction_first,fraction_second,batch_first,batch_second
V100,lm,net,0.8,0.75,20,64
V100,net,net,0.65,0.65,64,64
V100,lm,gpt,0,0,20,
"""
RATES = """gpu,first,second,rate_first,rate_second
V100,lm,net,8.0,3.0
V100,net,net,2.6,2.6
V100,lm,gpt,0,0
"""
ALONE = """gpu,workload,rate,batch
V100,lm,10,20
V100,net,4,64
T4,net,1,64
T4,lm,0,20
"""


def fractions(found: PairProfiles) -> dict[tuple[str, str, str], tuple[float, float]]:
    """By names, the lower workload first."""
    told = {}
    names, gpus = found.pairs.workloads, found.pairs.gpu_types
    columns = (found.pairs.gpu, found.pairs.first, found.pairs.second, found.first, found.second)
    for gpu, a, b, one, other in zip(*(column.tolist() for column in columns), strict=True):
        first, second = sorted([(names[a], one), (names[b], other)])
        told[gpus[gpu], first[0], second[0]] = (first[1], second[1])
    return told


def written(folder: Path, text: str, name: str = "pairs.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_fractions_and_rates_say_the_same(tmp_path: Path) -> None:
    expected = {
        ("V100", "lm", "net"): (0.8, 0.75), ("V100", "net", "net"): (0.65, 0.65), ("V100", "gpt", "lm"): (0.0, 0.0)
    }  # fmt: skip
    own = read_pairs(written(tmp_path, OWN))
    assert fractions(own) == expected and len(own.ran) == 2
    assert dict(zip(own.features.workloads, own.features.batch.tolist(), strict=True))["net"] == 64
    alone = written(tmp_path, ALONE, "alone.csv")
    rates = optsched.read_pairs(written(tmp_path, RATES), alone=alone)
    assert fractions(rates) == expected
    assert rates.features.gpu_types == ("T4", "V100")
    np.testing.assert_array_equal(rates.features.isolated, [[np.nan, np.nan], [np.nan, 10], [1, 4]])
    lines = [line + tail for line, tail in zip(RATES.splitlines(), (",alone_first,alone_second", ",10,4", ",4,4", ",,"),
                                               strict=True)]  # fmt: skip
    inside = read_pairs(written(tmp_path, "\n".join(lines)))
    assert fractions(inside) == expected and inside.features.gpu_types == ("V100",)


def test_several_files_are_one_table(tmp_path: Path) -> None:
    lines = OWN.splitlines()
    parts = [
        written(tmp_path, f"{lines[0]}\n{line}\n", f"{row}.csv")
        for row, line in enumerate(lines[1:])
    ]
    assert fractions(read_pairs(parts)) == fractions(read_pairs(written(tmp_path, OWN)))


def test_gavel_s_flat_tables(tmp_path: Path) -> None:
    pairs = written(tmp_path, "gpu_type,model_a,batch_a,model_b,batch_b,steps_per_s_a,steps_per_s_b\n"
                              "k80,A3C,1,LM,10,2,9\nk80,LM,10,LM,10,0,0\n")  # fmt: skip
    alone = written(tmp_path, "gpu_type,consolidated,model,batch_size,num_gpus,steps_per_s_total\n"
                              "k80,1,A3C,1,1,4\nk80,1,LM,10,1,12\nk80,0,LM,10,1,24\nk80,1,LM,10,2,24\n",
                    "alone.csv")  # fmt: skip
    found = read_pairs(pairs, alone=alone)
    assert fractions(found) == {
        ("K80", "A3C", "LM (batch size 10)"): (0.5, 0.75), ("K80",) + ("LM (batch size 10)",) * 2: (0, 0)
    }  # fmt: skip
    assert found.features.family == ("A3C", "LM") and found.features.batch.tolist() == [1, 10]


def key(job: str, gpus: int = 1) -> str:
    return str((job, gpus))


def gavel(**change: object) -> dict[str, object]:
    a, b = key("A3C"), key("LM (batch size 10)")
    table = {
        a: {"null": 4.0, a: [0.0, 0.0], b: [2.0, 9.0]},
        b: {"null": 12.0, b: [6.0, 6.0], a: [9.0, 2.0]},
        key("idle"): {"null": 0.0, a: [1.0, 1.0]},
        key("A3C", 2): {"null": 8.0, key("A3C", 2): [1.0, 1.0]},
    }
    return {"k80": table, "k80_unconsolidated": {a: {"null": 3.0, a: [1.0, 1.0]}}} | change


def test_gavel_s_json(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(gavel()), "throughputs.json")
    found = read_pairs(path)
    lm = "LM (batch size 10)"
    assert len(found) == 3  # both directions of a pair are one measurement
    assert fractions(found) == {
        ("K80", "A3C", lm): (0.5, 0.75),
        ("K80", lm, lm): (0.5, 0.5),
        ("K80", "A3C", "A3C"): (0, 0),
    }
    assert found.features.isolated.tolist() == [[4.0], [12.0]]
    pairs = written(tmp_path, f"gpu,first,second,rate_first,rate_second\nK80,A3C,{lm},1,6\n")
    assert fractions(read_pairs(pairs, alone=path)) == {("K80", "A3C", lm): (0.25, 0.5)}


def test_a_job_that_is_faster_beside_another_keeps_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(
        tmp_path,
        "gpu,first,second,rate_first,rate_second,alone_first,alone_second\nT4,a,b,8,3,4,4\n",
    )
    with caplog.at_level(logging.WARNING, "optsched"):
        assert fractions(read_pairs(path)) == {("T4", "a", "b"): (1.0, 0.75)}
    assert (
        f"1 jobs run faster beside another than alone, up to 2 times ({path}:2:rate_first)"
        in caplog.text
    )


def test_all_of_gavel_s_pairs_by_either_way() -> None:
    flat, whole = DATA / "perfmodel", DATA / "gavel" / "simulation_throughputs.json"
    if not (flat.exists() and whole.exists()):
        pytest.skip("the tables of Gavel are not here")
    one = read_pairs(flat / "gavel_pairs_1gpu.csv", alone=flat / "gavel_simulation_isolated.csv")
    assert fractions(one) == fractions(read_pairs(whole))
    assert (len(one), len(one.ran)) == (1053, 976)


HEAD = "gpu,first,second,rate_first,rate_second,alone_first,alone_second\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "pairs.csv: found an empty file"),
        (HEAD, "pairs.csv: found no line below the first, expected at least one pair"),
        ("gpu,first,second\nT4,a,b\n", "pairs.csv:1: found neither fractions nor rates, expected the columns..."),
        ("gpu,first,second,rate_first,fraction_first\nT4,a,b,1,1\n", "pairs.csv:1: found columns of both fractions..."),
        ("gpu,first,second,rate_first\nT4,a,b,1\n", "pairs.csv:1: found no column rate_second"),
        ("gpu,first,rate_first,rate_second\nT4,a,1,1\n", "pairs.csv:1: found no column second"),
        ("first,second,rate_first,rate_second\na,b,1,1\n", "pairs.csv:1: found no column gpu"),
        (HEAD + "T4,a,,1,1,2,2\n", "pairs.csv:2:second: found nothing, expected a text"),
        (HEAD + "T4,a,b,1,,2,2\n", "pairs.csv:2:rate_second: found nothing, expected a rate in steps/s..."),
        (HEAD + "T4,a,b,1,-1,2,2\n", "pairs.csv:2:rate_second: found -1.0, expected a rate in steps/s, at least 0"),
        (HEAD + "T4,a,b,1,x,2,2\n", 'pairs.csv:2:rate_second: found "x", expected a number'),
        (HEAD + "T4,a,b,1,0,2,2\n",
         "pairs.csv:2:rate_second: found 0 beside 1, expected 0 of both jobs, which could..."),
        (HEAD + "T4,a,b,0,1,2,2\n", "pairs.csv:2:rate_first: found 0 beside 1, expected 0 of both..."),
        (HEAD + "T4,a,b,1,1,0,2\n", "pairs.csv:2:alone_first: found 0.0, expected a rate in steps/s above 0"),
        (HEAD + "T4,a,b,1,1,2,\n", 'pairs.csv:2:rate_second: found no rate of "b" alone on "T4", expected one in a '
                                    "column alone_second, or in a table of rates alone"),
        (OWN.replace("0.75", "1.75"), "pairs.csv:2:fraction_second: found 1.75, expected a fraction from 0 to 1"),
        (OWN.replace("64,64", "64,32"), 'pairs.csv:3: found batch 32 of "net", expected 64, as before'),
        (OWN.replace("64,64", "64,0"), "pairs.csv:3:batch_second: found 0.0, expected samples of one GPU..."),
        ("gpu_type,model_a,model_b,steps_per_s_a,steps_per_s_b\nk80,A,,1,1\n", "pairs.csv:2:model_b: found nothing"),
        ("gpu,first,second,fraction_first,fraction_second,family_first\nT4,a,b,1,1,x\nT4,a,c,1,1,y\n",
         'pairs.csv:3: found family "y" of "a", expected "x", as before'),
        ('{"k80": {}}', "pairs.csv: throughputs.k80: found {}"),
    ],
)  # fmt: skip
def test_wrong_tables_of_pairs(tmp_path: Path, text: str, words: str) -> None:
    with refuses(words):
        read_pairs(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu,workload\nT4,a\n", "alone.csv:1: found no column rate"),
        ("gpu,rate\nT4,1\n", "alone.csv:1: found no column workload"),
        ("gpu,workload,rate\nT4,,1\n", "alone.csv:2:workload: found nothing, expected a text"),
        (
            "gpu,workload,rate\nT4,a,-1\n",
            "alone.csv:2:rate: found -1.0, expected a rate in steps/s, at least 0",
        ),
        (
            "gpu,workload,rate\nT4,a,1\nT4,a,2\n",
            'alone.csv:3:rate: found 2 steps/s of "a" on "T4", expected 1, as...',
        ),
        ("gpu,workload,rate\n", "alone.csv: found no line below the first"),
        ("gpu_type,model,steps_per_s_total\nk80,,1\n", "alone.csv:2:model: found nothing"),
    ],
)
def test_wrong_tables_of_rates_alone(tmp_path: Path, text: str, words: str) -> None:
    with refuses(words):
        read_pairs(written(tmp_path, OWN), alone=written(tmp_path, text, "alone.csv"))


def test_half_a_pair_and_nothing_in_gavel_s_json(tmp_path: Path) -> None:
    a = key("A3C")
    half = written(tmp_path, json.dumps({"k80": {a: {"null": 4.0, a: [1.0, 0.0]}}}), "t.json")
    with refuses("t.json:k80.A3C.A3C: found [1.0, 0.0], expected 0 of both jobs..."):
        read_pairs(half)
    nothing = written(tmp_path, json.dumps({"k80": {a: {"null": 4.0}}}), "t.json")
    with refuses("found no pair in t.json, expected at least one pair on one GPU"):
        read_pairs(nothing)
    with pytest.raises(UsageError, match="no pairs: expected files"):
        read_pairs([])
    with refuses("found no readable file at..."):
        read_pairs(tmp_path / "none.csv")
