"""The examples run, teach what they say, and stay short."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import optsched

pytestmark = pytest.mark.documentation

FOLDER = Path(__file__).parent.parent / "examples"
WORDS = {
    "quickstart.py": [
        "quickstart: 12 jobs on 16 GPUs in 3 pools",
        "max-min-fairness",
        "makespan",
        "isolated",
        "1.00x",
    ],
    "from_arrays.py": [
        "150 jobs want",
        "price",
        "v100",
        "p100",
        "k80",
        "no gain is above its price",
    ],
    "decomposition.py": ["bound     2555 after", "breaks a row by 0.0", "above the optimum"],
    "own_row.py": [
        "quota, GPUs",
        "time (12), capacity (3), levels (12), quota (1)",
        "in the LP file",
    ],
    "pictures.py": [
        "allocation.png",
        "cluster.png",
        "prices.png",
        "search.png",
        "progress of highs",
        "equal bytes: True",
    ],
    "gallery.py": [
        "allocation  quickstart",
        "machines    unrelated     makespan-unrelated  190",
        "progress",
    ],
    "scheduler.py": [
        " 0.3 h   1 start",
        "stopped: a node that it held is down",
        "recovered: 60 of 60 jobs are complete",
        "round 30 again:",
    ],
    "picture.py": ["the picture is picture.png"],
}
OWN_PROCESS = ["scheduler.py"]
"""Those that set up the logging of their process."""
ARGUMENTS = {"picture.py": ["@quickstart", "max-min-fairness", "picture.png"]}


def test_every_example_is_listed() -> None:
    assert sorted(WORDS) == sorted(path.name for path in FOLDER.glob("*.py"))


def run(name: str, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)


@pytest.mark.parametrize("name", [name for name in WORDS if name not in OWN_PROCESS])
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(FOLDER / name), *ARGUMENTS.get(name, [])])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    told = capsys.readouterr()
    assert told.err == ""
    assert [words for words in WORDS[name] if words not in told.out] == []


@pytest.mark.parametrize("name", OWN_PROCESS)
def test_an_example_runs_in_a_process(name: str, tmp_path: Path) -> None:
    done = run(name, [], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [words for words in WORDS[name] if words not in done.stdout] == []


@pytest.mark.parametrize("name", WORDS)
def test_an_example_is_short_and_says_what_it_teaches(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert len(text.splitlines()) <= 80
    if name not in ARGUMENTS:
        assert "What you learn\n" in (ast.get_docstring(ast.parse(text)) or "")


def test_the_picture_fails_with_the_library_s_exit_code(tmp_path: Path) -> None:
    done = run("picture.py", ["@nothing", "makespan", "picture.png"], tmp_path)
    assert done.returncode == 2
    assert "no instance @nothing ships" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_quota_counts_a_tenant_s_job_that_is_the_second_of_a_pair() -> None:
    builder = optsched.InstanceBuilder()
    pool = builder.add_pool("v100", nodes=1, gpus_per_node=1)
    tenants = [builder.add_tenant(name) for name in ("speech", "vision")]
    works = [builder.add_workload(name, throughput={pool: 10.0}) for name in ("first", "second")]
    for name, work, tenant in zip("ab", works, tenants, strict=True):
        builder.add_job(name, workload=work, tenant=tenant, steps=1000, gpus=1)
    builder.add_colocation(tuple(works), pool=pool, throughput=(9.0, 9.0))
    example = runpy.run_path(str(FOLDER / "own_row.py"))
    solution = optsched.solve(
        optsched.compile(builder.instance()).per_job(),
        "max-throughput",
        extend=example["quota"](0.25),
    )
    assert solution.objective == pytest.approx(0.75 * 10.0 + 0.25 * 18.0)
