"""``solve --place`` and ``import openb`` on the command line."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optsched import api

# Private names: parts of a command are checked without a command line
from optsched.cli.solution_view import gpus_words
from optsched.instance.durations import LEAST
from optsched.solution import Solution

WHOLE = ("-f", "max-throughput", "-O", "integral=true")


def test_place_shows_gpus_bounds_and_who_found_no_place(
    run: Any, write: Callable[..., Path], small: dict[str, Any]
) -> None:
    small["cluster"]["pools"][1] = {
        "name": "slow",
        "nodes": [{"name": name, "gpus": 1} for name in "xyz"],
    }
    small["cluster"]["pools"][1]["nodes"][2]["gpus"] = 2
    small["jobs"] = [
        {"id": name, "options": [{"pool": "slow", "gpus": 2, "nodes": 1, "throughput": 1.0}]}
        for name in "ab"
    ]
    result = run("solve", write(small), *WHOLE, "--place")
    assert result.code == 0
    out = " ".join(result.out.split())
    assert "placed 1 of 2 rows; no placement has more than 1" in out
    assert "nodes spanned 1 in all (the fewest for so many rows)" in out
    assert "moved 0 GPUs" in out and "proof no placement is better" in out
    assert "a z/0-1 2" in out
    assert (
        "job b: needs 2 GPUs of slow on at most 1 node; 2 GPUs are free for it: 1 on x, 1 on y"
        in out
    )
    for columns in (60, 80, 100):
        lines = run("solve", write(small), *WHOLE, "--place", columns=columns).out.splitlines()
        assert max(map(len, lines)) <= columns


def test_place_is_written_and_verified(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    placed = run("solve", "@quickstart", *WHOLE, "--place", "-o", path, "--json").json
    assert (
        len(placed["placement"])
        == placed["placement_figures"]["rows_placed"]
        == len(placed["allocation"])
    )
    assert run("verify", "@quickstart", path).code == 0
    path.write_text(path.read_text().replace("v100-0/0", "v100-9/0"))
    refused = run("verify", "@quickstart", path, "--json")
    assert refused.code == 6 and "placement[1].gpus[0]" in {
        finding["field"] for finding in refused.json["findings"]
    }


def test_the_placement_gets_what_is_left_of_the_time_limit(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float | None] = []
    place = api.place

    def noted(solution: Solution, *, time_limit: float | None) -> Solution:
        given.append(time_limit)
        return place(solution, time_limit=time_limit)

    monkeypatch.setattr(api, "place", noted)
    for limit in ((), ("--time-limit", "50s"), ("--time-limit", "0.001s")):
        assert run("solve", "@quickstart", *WHOLE, "--place", *limit).code == 0
    unlimited, long, least = given
    assert unlimited is None
    assert long is not None and 30.0 < long < 50.0
    assert least == LEAST


def test_without_place_there_is_no_placement(run: Any) -> None:
    assert "placement" not in run("solve", "@quickstart", "--json").json


def test_rows_that_take_turns_are_an_error_that_says_what_to_do(run: Any, tmp_path: Path) -> None:
    """What was solved is written all the same."""
    path = tmp_path / "plan.json"
    result = run("solve", "@quickstart", "--place", "-o", path, "--json")
    assert result.code == 2 and "realise it in rounds first (--rounds)" in str(result.error)
    assert result.json == json.loads(path.read_text())
    assert result.json["status"] == "optimal" and "placement" not in result.json


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("step", "lacks"), [("realise", "rounds"), ("place", "placement")])
def test_what_was_solved_is_kept_if_rounds_or_placement_are_interrupted(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str, lacks: str, number: int
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(api, step, interrupted)
    path = tmp_path / "plan.json"
    asked = ("--rounds", "auto", "--place")
    result = run("solve", "@quickstart", *asked, "-o", path, "--json")
    told = f"optsched: interrupted: the solution is there without its {lacks}\n"
    assert (result.code, result.complaints) == (130, told)
    assert result.json == json.loads(path.read_text())
    assert result.json["status"] == "optimal" and "placement" not in result.json
    assert ("rounds" in result.json) == (lacks == "placement")
    result = run("solve", "@quickstart", *asked)
    assert result.code == 130 and "status       optimal\n" in result.out


def test_a_cluster_too_large_to_be_placed_is_refused_before_it_is_solved(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solved(*_: Any, **__: Any) -> None:
        raise AssertionError("it was solved")

    monkeypatch.setattr(api, "MOST_PLACED", 8)
    monkeypatch.setattr(api, "solve", solved)
    result = run("solve", "@quickstart", *WHOLE, "--place")
    assert result.refused("--place: found a cluster of 16 GPUs, expected at most 8 GPUs of nodes")


def test_the_time_of_reading_is_shown_with_a_placement_too(run: Any) -> None:
    timings = run("solve", "@quickstart", *WHOLE, "--place", "--json").json["timings"]
    assert timings["load"] > 1e-4


def test_an_infeasible_instance_stays_infeasible(run: Any) -> None:
    result = run("solve", "@infeasible", "-C", "deadlines", "--place")
    assert result.code == 4 and "Placement" not in result.out


def test_gpus_are_told_by_node() -> None:
    assert gpus_words(["a/0", "a/1", "a/3", "b/7"]) == "a/0-1 3, b/7"


def test_import_openb(run: Any, tmp_path: Path) -> None:
    nodes, pods, made = tmp_path / "nodes.csv", tmp_path / "pods.csv", tmp_path / "openb.json"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\n")
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,1024,1,500\np1,1000,1024,2,1000\n"
    )
    result = run("import", "openb", nodes, pods, "-o", made)
    assert (result.code, result.out) == (0, f"{made}: 2 jobs, 1 pool\n")
    assert run("import", "openb", nodes, "-o", "-", "--name", "mine").json["name"] == "mine"
    assert run("solve", made, *WHOLE, "--place").code == 0
    timed = run("import", "openb", nodes, "--at", "3h", "-o", made)
    assert timed.refused("pods: found none, expected a pod list")
    assert run("import", "openb", tmp_path / "none.csv", "-o", made).code == 3
    pods.write_text("name,cpu\n")
    told = run("import", "openb", nodes, pods, "-o", made)
    columns = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    lines = [
        f"{pods}:1: found no column {name}, expected one, beside name, cpu" for name in columns
    ]
    assert told.code == 3
    assert told.err == "".join(f"optsched: error: {line}\n" for line in lines)
    nodes.write_text("sn\n")
    told = run("import", "openb", nodes, "-o", made)
    assert told.code == 3
    assert f"{nodes}:1: found no column cpu_milli" in told.err
