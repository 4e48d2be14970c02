"""Running command lines in this process, with captured streams."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document
from refusals import reported, stated

from optsched.cli.main import main

# Private names: parts of a command are checked without a command line
from optsched.cli.shell import one_line
from optsched.errors import JournalDamaged, OptschedError, UsageError, WrongValue
from optsched.instance import shipped_path


@dataclass(frozen=True)
class Result:
    """What a command line gave; ``error`` is the last one that it reported."""

    code: int
    out: str
    err: str
    error: BaseException | None

    @property
    def json(self) -> Any:
        """Standard output as JSON: all of it, and strict."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} in JSON")

        return json.loads(self.out, parse_constant=refuse)

    def refused(self, text: str, code: int = UsageError.exit_code) -> bool:
        """Whether the command printed nothing but one error: one with the stated fields (`refusals`), or, where an
        error has no fields, one with these words."""
        error = self.error
        if not isinstance(error, OptschedError) or (self.code, self.out) != (code, ""):
            return False
        if self.complaints != f"optsched: {one_line(f'error: {error}')}\n":
            return False
        return (
            stated(text).holds(error)
            if isinstance(error, WrongValue | JournalDamaged)
            else text in str(error)
        )

    def check_width(self, columns: int) -> None:
        """Every line fits, and none ends with a blank."""
        lines = self.out.splitlines()
        assert max(map(len, lines), default=0) <= columns
        assert not any(line != line.rstrip() for line in lines)

    @property
    def complaints(self) -> str:
        """Standard error without notes on the answer (`test_cli_notes.py`)."""
        lines = self.err.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("optsched: note: "))


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line; ``stdin`` is bytes, ``columns`` the width of the terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object, stdin: bytes | None = None, columns: int | None = None) -> Result:
        capsys.readouterr()
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with reported() as errors:
            code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err
        return Result(code, captured.out, captured.err, errors[-1] if errors else None)

    return run


QUICKSTART = json.loads(shipped_path("quickstart").read_text())


@pytest.fixture
def document() -> dict[str, Any]:
    """The quickstart instance, to be changed at will."""
    return copy.deepcopy(QUICKSTART)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a document, or bytes, as an instance file."""

    def write(content: Any, name: str = "instance.json") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


@pytest.fixture
def small() -> dict[str, Any]:
    """Two pools, four jobs, one of each fate: runs, shares, has no place, has nothing left to do."""
    return instance_document(
        [
            {"name": "fast", "nodes": 1, "gpus_per_node": 2, "cost_per_gpu_hour": 2.0},
            {"name": "slow", "nodes": 2, "gpus_per_node": 2, "cost_per_gpu_hour": 0.5},
        ],
        [
            {"id": "a", "gpus": 1, "steps": 3600, "throughput": {"fast": 2.0, "slow": 1.0}},
            {"id": "b", "gpus": 2, "steps": 7200, "throughput": {"fast": 3.0, "slow": 0.5}},
            {"id": "wide", "gpus": 9, "steps": 10, "throughput": {"fast": 1.0}},
            {"id": "done", "gpus": 1, "steps": 10, "steps_done": 10, "throughput": {"fast": 1.0}},
        ],
        name="small",
    )


def hard_program(jobs: int = 120, resources: int = 10) -> dict[str, Any]:
    """A knapsack with many constraints: an incumbent at once, its proof in hours."""
    import numpy as np

    random = np.random.default_rng(0)
    uses = random.integers(10, 1000, (jobs, resources)).astype(float)
    value = uses.mean(axis=1) + 500 * random.random(jobs)
    return instance_document(
        {"p": 1},
        [
            {
                "id": f"j{i}",
                "steps": 100,
                "options": [
                    {
                        "pool": None,
                        "throughput": float(value[i]),
                        "uses": {f"r{k}": float(uses[i, k]) for k in range(resources)},
                    }
                ],
            }
            for i in range(jobs)
        ],
        resources=[
            {"name": f"r{k}", "kind": "renewable", "capacity": float(uses[:, k].sum() // 2)}
            for k in range(resources)
        ],
        name="hard",
    )


@pytest.fixture
def hard(write: Callable[..., Path]) -> Path:
    """A file of `hard_program`."""
    return write(hard_program(), "hard.json")
