"""The import contracts of pyproject.toml hold, and cover every module."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from optsched.lazy import CONVENIENCES

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent


def contracts() -> list[dict[str, object]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def layers() -> list[str]:
    (names,) = (contract["layers"] for contract in contracts() if contract["type"] == "layers")
    return [part.strip() for layer in names for part in layer.split("|")]


def test_the_contracts_hold() -> None:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"Contracts: {len(contracts())} kept, 0 broken" in done.stdout


def test_every_module_of_optsched_is_in_a_layer() -> None:
    modules = {path.stem for path in (ROOT / "optsched").glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in (ROOT / "optsched").glob("*/__init__.py")}
    assert modules | packages == set(layers())


def test_methods_that_point_upwards_are_listed() -> None:
    assert set(CONVENIENCES) == {
        "Instance.from_arrays",
        "Instance.from_document",
        "Instance.sha256",
        "Instance.to_document",
    }
    for module, function in CONVENIENCES.values():
        assert callable(getattr(import_module(module), function))
