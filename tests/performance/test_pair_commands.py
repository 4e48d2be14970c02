"""``optsched model fit-pairs``, and what other commands do with the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document
from refusals import reported, stated

import optsched
from optsched.cli.main import main
from optsched.errors import UsageError

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.files import model_bytes, read_model

PAIRS = """gpu,first,second,rate_first,rate_second
V100,lm,net,8.0,3.0
V100,net,net,2.6,2.6
V100,lm,lm,3,3
V100,big,lm,0,0
V100,big,net,0,0
"""
ALONE = "gpu,workload,rate\nV100,lm,10\nV100,net,4\n"
INSTANCE: dict[str, Any] = instance_document(
    [{"name": "v100", "gpu": "V100", "nodes": 1, "gpus_per_node": 1}],
    [
        {"id": "a", "workload": "lm", "steps": 1000},
        {"id": "b", "workload": "resnet", "steps": 1000},
        {"id": "c", "workload": "big", "steps": 1000},
    ],
    workloads={
        "lm": {"throughput": {"v100": {"1": 20.0}}},
        "resnet": {"parameters": {"profile": "net"}, "throughput": {"v100": {"1": 8.0}}},
        "big": {"throughput": {"v100": {"1": 1.0}}},
    },
)


@dataclass(frozen=True)
class Files:
    folder: Path
    pairs: Path
    alone: Path
    instance: Path
    model: Path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(
        tmp_path,
        *(tmp_path / name for name in ("pairs.csv", "alone.csv", "instance.json", "pairs.json")),
    )
    found.pairs.write_text(PAIRS)
    found.alone.write_text(ALONE)
    found.instance.write_text(json.dumps(INSTANCE))
    return found


def test_from_a_table_to_a_verified_plan(run: Run, files: Files) -> None:
    code, out, err = run(
        "model", "fit-pairs", files.pairs, "--alone", files.alone, "-o", files.model
    )
    assert (code, err) == (
        0,
        "",
    ) and "5 pairs of 6 that there can be, 2 measurements of jobs that could" in out
    plan = files.folder / "plan.json"
    assert (
        run("solve", files.instance, "-f", "max-throughput", "--model", files.model, "-o", plan)[0]
        == 0
    )
    solved = json.loads(plan.read_text())
    assert solved["certificate"]["ok"]
    # the pair keeps 0.8 and 0.75 of 20 and 8 steps/s, which together is more than 20
    assert solved["throughput"] == pytest.approx({"a": 16.0, "b": 6.0, "c": 0.0})
    assert run("verify", files.instance, plan, "--model", files.model)[0] == 0
    assert run("verify", files.instance, plan)[0] == 6
    alone = json.loads(run("solve", files.instance, "-f", "max-throughput", "--json")[1])
    assert alone["objective"] < solved["objective"]


def test_it_is_the_model_of_the_library_and_stands_in_instances(run: Run, files: Files) -> None:
    assert (
        run(
            "model",
            "fit-pairs",
            files.pairs,
            "--alone",
            files.alone,
            "-m",
            "row-column",
            "-o",
            files.model,
        )[0]
        == 0
    )
    document = optsched.fit_pairs(optsched.read_pairs(files.pairs, alone=files.alone), "row-column")
    assert files.model.read_bytes() == model_bytes(document)
    assert (document["model"], document["of"]) == ("interference", {"model": "table"})
    by_file = optsched.solve(files.instance, "max-throughput", performance=files.model)
    within = optsched.Instance.from_document({**INSTANCE, "performance": document})
    assert optsched.solve(within, "max-throughput").objective == by_file.objective


def test_on_top_of_a_fitted_model(run: Run, files: Files) -> None:
    base, profiles = files.folder / "base.json", files.folder / "profiles.csv"
    lines = [
        f"{job},V100,{k},1,8,{0.1 * (1 + row + 0.1 * k)}"
        for row, job in enumerate(("lm", "net"))
        for k in (1, 2)
    ]
    profiles.write_text("workload,gpu,gpus,nodes,samples,seconds\n" + "\n".join(lines) + "\n")
    assert run("model", "fit", profiles, "-m", "interpolation", "-o", base)[0] == 0
    arguments = (
        "model",
        "fit-pairs",
        files.pairs,
        "--alone",
        files.alone,
        "--base",
        base,
        "-o",
        files.model,
    )
    code, out, _ = run(*arguments, "--json")
    assert code == 0 and json.loads(out)["of"] == "interpolation"
    assert read_model(files.model)["of"] == read_model(base)
    unstated = {name: {"parameters": {"batch": 8}} for name in ("lm", "net")}
    jobs = [{"id": name, "workload": name, "steps": 10} for name in unstated]
    pool = {"name": "v100", "gpu": "V100", "nodes": 1, "gpus_per_node": 1}
    files.instance.write_text(
        json.dumps({**INSTANCE, "cluster": {"pools": [pool]}, "workloads": unstated, "jobs": jobs})
    )
    solution = optsched.solve(files.instance, "max-throughput", performance=files.model)
    assert solution.certificate.ok
    assert solution.objective == pytest.approx(0.8 / 0.11 + 0.75 / 0.21)


def test_gavel_s_names_of_job_types_are_those_of_imported_instances(files: Files) -> None:
    files.pairs.write_text("gpu_type,model_a,batch_a,model_b,batch_b,steps_per_s_a,steps_per_s_b\n"
                           "v100,LM,10,LM,20,8,4\nv100,LM,10,LM,10,1,1\nv100,LM,20,LM,20,1,1\n")  # fmt: skip
    files.alone.write_text(
        "gpu_type,model,batch_size,steps_per_s_total\nv100,LM,10,10\nv100,LM,20,6\n"
    )
    document = optsched.fit_pairs(optsched.read_pairs(files.pairs, alone=files.alone), "row-column")
    workloads = {
        f"LM (batch size {batch})": {
            "throughput": {"v100": {"1": rate}}, "parameters": {"profile": "LM", "batch_per_gpu": batch},
        }
        for batch, rate in ((10, 10.0), (20, 6.0))
    }  # fmt: skip
    jobs = [{"id": f"j{row}", "workload": name, "steps": 10} for row, name in enumerate(workloads)]
    pool = {"name": "v100", "gpu": "V100", "nodes": 1, "gpus_per_node": 1}
    files.instance.write_text(
        json.dumps({**INSTANCE, "cluster": {"pools": [pool]}, "workloads": workloads, "jobs": jobs})
    )
    solution = optsched.solve(files.instance, "max-throughput", performance=document)
    assert solution.to_document()["throughput"] == pytest.approx({"j0": 8.0, "j1": 4.0})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ["-m", "nothing"],
            "unknown model of pairs 'nothing', expected one of auto, boosted-pairs",
        ),
        (
            ["-m", "row-column:penalty=1", "-O", "penalty=2"],
            "--model row-column: found penalty twice",
        ),
    ],
)
def test_wrong_words(run: Run, files: Files, given: list[str], words: str) -> None:
    found = run(
        "model", "fit-pairs", files.pairs, "--alone", files.alone, "-o", files.model, *given
    )
    assert found[0] == 2 and words in found[2], found
    assert not files.model.exists()


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        (
            ["-m", "row-column", "-O", "penalty=-1"],
            "performance.penalty: found -1, expected a number above 0",
        ),
        (
            ["-m", "boosted-pairs"],
            "profiles: found 3 pairs that ran together, expected at least 20 for...",
        ),
        (
            ["-m", "conformal-pairs"],
            """performance.of: found nothing, expected its base model, such as -O of='{"mo...""",
        ),
        (["--base", "none.json"], "found no readable file at none.json..."),
        (
            ["-O", "row-column={}", "-O", "x={}"],
            "performance.x: found {}, expected options of one of boosted-pairs...",
        ),
    ],
)
def test_what_is_refused(run: Run, files: Files, given: list[str], refusal: str) -> None:
    with reported() as errors:
        found = run(
            "model", "fit-pairs", files.pairs, "--alone", files.alone, "-o", files.model, *given
        )
    assert found[0] == 3 and stated(refusal).holds(errors[0]), found
    assert not files.model.exists()


def test_wrong_pairs_and_standard_output(run: Run, files: Files) -> None:
    with reported() as errors:
        assert run("model", "fit-pairs", files.pairs, "-o", files.model)[0] == 3
    assert stated('pairs.csv:2:rate_first: found no rate of "lm" alone on "V100"').holds(errors[0])
    out = run("model", "fit-pairs", files.pairs, "--alone", files.alone, "-o", "-")[1]
    assert json.loads(out)["format"] == "optsched-model/1"
    assert (
        run("model", "fit-pairs", files.pairs, "--alone", files.alone, "-o", files.model, "-q")[1]
        == ""
    )
    pairs = optsched.read_pairs(files.pairs, alone=files.alone)
    with pytest.raises(UsageError, match="options of the model of pairs are given in two ways"):
        optsched.fit_pairs(pairs, ("row-column", {"penalty": 1}), penalty=2)
