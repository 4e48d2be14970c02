"""Import of ElasticFlow's tables and traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beside import SHARED, needs
from refusals import refuses

import optsched
from optsched.cli.main import main
from optsched.errors import UsageError
from optsched.formats import import_elasticflow
from optsched.instance import Instance

DATA = SHARED / "data" / "elasticflow"
PUBLIC = needs(DATA)
HEAD = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
TRACE = HEAD + "x,100,1000,vgg,400,64,2,300\ny,150,500,bert,9000,8,1,50\nz,200,7,vgg,300,128,4,10\n"
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    for gpu, rates in (("T4", "1.0,1.5,0,2.0"), ("A100", "4.0,6.0,9.0,nan")):
        folder = tmp_path / f"throughputs_{gpu}"
        folder.mkdir()
        (folder / "vgg.csv").write_text(f"global_batch_size,1,2,3,4\n64,{rates}\n128,{rates}\n")
    (tmp_path / "throughputs_A100" / "bert.csv").write_text("global_batch_size,1,2\n8,0.5,0.75\n")

    def make(
        trace: str = TRACE, pools: dict[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        (tmp_path / "trace.csv").write_text(trace)
        sizes = {"A100": (2, 2), "T4": (4, 1)} if pools is None else pools
        tables = {pool: tmp_path / f"throughputs_{pool}" for pool in sizes}
        return import_elasticflow(tables, tmp_path / "trace.csv", sizes, **more)

    return make


def test_workloads_have_the_rates_of_the_tables(make: Make) -> None:
    document = make()
    assert document["workloads"]["vgg/64"] == {
        "throughput": {
            "A100": {"1": 4.0, "2": 6.0, "3": 9.0},
            "T4": {"1": 1.0, "2": 1.5, "4": 2.0},
        },
        "parameters": {"profile": "vgg", "batch": 64.0},
    }
    assert document["workloads"]["bert/8"]["throughput"] == {"A100": {"1": 0.5, "2": 0.75}}
    assert list(document["workloads"]) == ["vgg/64", "bert/8", "vgg/128"]


def test_jobs_may_run_on_every_number_of_gpus_of_the_tables(make: Make) -> None:
    document = make()
    assert document["jobs"][0] == {
        "id": "x", "workload": "vgg/64", "gpus": {"min": 1, "max": 4, "levels": [1, 2, 3, 4]}, "steps": 1000.0,
        "arrival": 100.0, "deadline": 400.0,
    }  # fmt: skip
    assert [job["gpus"] for job in make(rigid=True)["jobs"]] == [2, 1, 4]
    assert (document["now"], [pool["nodes"] for pool in document["cluster"]["pools"]]) == (
        100.0,
        [2, 4],
    )
    solution = optsched.solve(Instance.from_document(make(at=200)), "max-throughput")
    assert solution.status == "optimal" and solution.unplaced == ()


def test_the_jobs_that_have_arrived(make: Make) -> None:
    document = make(at=150.0)
    assert [job["id"] for job in document["jobs"]] == ["x", "y"] and document["now"] == 150.0
    assert make(at=1.0)["jobs"] == []


def test_names_of_the_itp_traces_and_best_effort(make: Make) -> None:
    itp = TRACE.replace("submit_time,iteration", "submission_time,num_iteration").replace(
        "ddl", "deadline"
    )
    assert make(itp) == make()
    text = (
        HEAD.replace("\n", ",best_effort\n")
        + "x,100,1000,vgg,400,64,2,300,1\ny,100,1000,vgg,400,64,2,300,0\n"
    )
    assert [job.get("deadline") for job in make(text)["jobs"]] == [None, 400.0]


def test_jobs_are_sorted_by_time_and_stay_in_order_otherwise(make: Make) -> None:
    text = HEAD + "late,9,1,vgg,99,64,1,1\nfirst,2,1,vgg,99,64,1,1\nsecond,2,1,vgg,99,64,1,1\n"
    document = make(text)
    assert [job["id"] for job in document["jobs"]] == ["first", "second", "late"] and document[
        "now"
    ] == 2.0
    assert make("\ufeff" + text.replace("\n", "\r\n")) == document


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD, "trace.csv: found no line below the first, expected at least one job"),
        (HEAD + "x,1,2,gpt,3,64,1,2\n", 'trace.csv:2:model_name: found "gpt/64", expected a model and batch...'),
        (HEAD + "x,1,2,vgg,3,65,1,2\n", 'trace.csv:2:model_name: found "vgg/65", expected a model and batch...'),
        (HEAD + "x,5,2,vgg,3,64,1,2\n", "trace.csv:2:ddl: found 3.0, expected a time from the arrival on, 5"),
        (HEAD + "x,5,two,vgg,9,64,1,2\n", 'trace.csv:2:iteration: found "two", expected a number'),
        ("job_id,submit_time\n", "trace.csv:1: found no column iteration"),
        ("", "trace.csv: found an empty file, expected a first line with the columns..."),
        (HEAD + "x,5,2,vgg,9,64,0,2\n", 'trace.csv:2:num_gpu: found "0", expected a whole number of GPUs, at least 1'),
        (HEAD + "x,5,2,vgg,9,64,1.5,2\n", 'trace.csv:2:num_gpu: found "1.5", expected a whole number'),
        (HEAD + "x,5,-2,vgg,9,64,1,2\n", 'trace.csv:2:iteration: found "-2", expected a number of iterations...'),
        (HEAD + "x,nan,2,vgg,9,64,1,2\n", 'trace.csv:2:submit_time: found "nan", expected a number'),
        (HEAD + "x,5,2,vgg,,64,1,2\n", "trace.csv:2:ddl: found nothing, expected a number"),
        (HEAD + "x,5,2,vgg,9,64,1\n", "trace.csv:2: found 7 cells, expected 8, as in the first line"),
        (
            HEAD + "x,5,2,vgg,9,64,1,2\n\nx,6,2,vgg,9,64,1,2\n",
            'trace.csv:4:job_id: found "x" a second time, after line 2, expected names that differ',
        ),
        (
            HEAD.replace("\n", ",best_effort\n") + "x,5,2,vgg,9,64,1,2,7\n",
            'trace.csv:2:best_effort: found "7", expected 0 or 1',
        ),
    ],
)  # fmt: skip
def test_wrong_traces(make: Make, text: str, words: str) -> None:
    with refuses(words):
        make(text)


def test_pools_and_tables_go_together(make: Make, tmp_path: Path) -> None:
    with refuses("found ..., expected a table for each pool", UsageError):
        make(pools={})
    with refuses("found pools A100 and tables of T4", UsageError):
        import_elasticflow({"T4": tmp_path}, tmp_path / "trace.csv", {"A100": (1, 1)})


def test_the_command(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = make(name="elasticflow", at=150.0)
    given = [
        "import",
        "elasticflow",
        str(tmp_path / "trace.csv"),
        "--at",
        "150",
        "-o",
        str(tmp_path / "made.json"),
    ]
    for gpu, size in (("A100", "2x2"), ("T4", "4")):
        given += ["--table", f"{gpu}={tmp_path / f'throughputs_{gpu}'}", "--pool", f"{gpu}={size}"]
    assert (
        main(given) == 0
        and capsys.readouterr().out == f"{tmp_path / 'made.json'}: 2 jobs, 2 pools\n"
    )
    made = json.loads((tmp_path / "made.json").read_text())
    assert Instance.from_document(made).sha256 == Instance.from_document(expected).sha256
    for more, words in (
        (["--table", "T4"], "'T4'"),
        (["--table", "T4=x"], "--table: found T4 twice"),
        (["--pool", "T4=1"], "--pool: found T4 twice"),
        (["--pool", "K80=1"], "expected a table for each pool"),
    ):
        assert main([*given, *more]) == 2 and words in capsys.readouterr().err


@PUBLIC
@pytest.mark.study
def test_the_public_traces() -> None:
    """All of them: 69,351 jobs of ten ITP clusters, a further 195, and the three traces of ElasticFlow itself."""
    counts = {"elasticVpollux_e": 195, "philly_103959": 876, "resnet_cifar_trace": 5}
    for path in sorted(DATA.glob("*traces*/*.csv")):
        gpu = "T4" if path.stem == "elasticVpollux_e" else "A100"
        for rigid in (False, True):
            instance = Instance.from_document(
                import_elasticflow(
                    {gpu: DATA / f"throughputs_{gpu}"}, path, {gpu: (16, 4)}, rigid=rigid
                )
            )
            jobs = sum(bool(line.strip()) for line in path.read_text().splitlines()) - 1
            assert len(instance.jobs_table) == jobs == counts.get(path.stem, jobs)
