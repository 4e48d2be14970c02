"""Files that commands write: none that they read, and each another one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import optsched


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(optsched.load("@quickstart").to_document()))
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["compare", "FILE", "-f", "makespan", "-o", "FILE"],
        ["pareto", "FILE", "-f", "makespan", "-f", "cost", "-o", "FILE"],
        ["simulate", "FILE", "-p", "fifo", "-o", "FILE"],
        ["bench", "FILE", "-f", "makespan", "-o", "FILE"],
        ["solve", "FILE", "-o", "FILE"],
        ["solve", "FILE", "--log", "FILE"],
        ["export", "FILE", "-o", "FILE"],
        ["round", "FILE", "-o", "FILE"],
        ["model", "fit", "FILE", "-o", "FILE"],
        ["solve", "@quickstart", "--model", "FILE", "-o", "FILE"],
    ],
    ids=lambda command: "-".join(part for part in command if part.isalpha() and part != "FILE"),
)
def test_no_command_writes_over_what_it_reads(run: Any, instance: Path, command: list[str]) -> None:
    before = instance.read_bytes()
    result = run(*(str(instance) if part == "FILE" else part for part in command))
    assert result.code == 2
    assert f"found {instance}, which is read, expected another file" in result.err
    assert instance.read_bytes() == before


def test_two_outputs_are_two_files(run: Any, instance: Path) -> None:
    target = instance.with_name("both.json")
    result = run("round", instance, "-o", target, "--next", target)
    assert result.code == 2
    assert f"--next: found {target}, as -o, expected another file" in result.err
    assert not target.exists()


def test_a_state_is_replaced_by_the_next(run: Any, instance: Path) -> None:
    state = instance.with_name("state.json")
    assert run("round", instance, "--next", state).code == 0
    first = state.read_bytes()
    assert run("round", state, "--now", "+6m", "--next", state).code == 0
    assert state.read_bytes() != first


@pytest.mark.parametrize("command", ["compare", "pareto"])
def test_a_document_has_the_ending_of_one(run: Any, instance: Path, command: str) -> None:
    result = run(command, instance, "-f", "makespan", "-f", "cost", "-o", "picture.png")
    assert result.code == 2
    assert "picture.png: expected a name that ends in .json" in result.err


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_log_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    target = tmp_path / "solution.json"
    command = [sys.executable, "-m", "optsched", "solve", "@quickstart", "-v", "-o", str(target)]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stderr=full, stdout=subprocess.DEVNULL, check=False)
    assert ended.returncode == 0
    assert json.loads(target.read_text())["status"] == "optimal"
