"""The import contracts of pyproject.toml hold, and cover every module."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Container, Iterator
from importlib import import_module
from pathlib import Path

import networkx as nx
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
        "Formulation.solution",
        "Formulation.solve",
        "Instance.from_arrays",
        "Instance.from_document",
        "Instance.sha256",
        "Instance.to_document",
        "Instance.plot",
        "Solution.fragmentation",
        "Solution.objective_words",
        "Solution.plot",
        "Solution.write",
        "Assignment.prices_of_jobs",
        "LinearPlan.by_parts",
        "LinearPlan.by_patterns",
        "PricedRows.relaxed",
        "LinearPlan.slices",
        "Comparison.plot",
        "Prices.plot",
        "Results.plot",
        "Rounds.plot",
        "Sweep.plot",
        "Allocation.plot",
        "Schedule.plot",
        "Front.plot",
        "Simulation.plot",
        "Trace.plot",
        "Plan.plot",
        "Plan.next_state",
        "InstanceBuilder.add_constraint",
        "Picture.save",
        "Picture.to_svg",
    }
    for module, function in CONVENIENCES.values():
        assert callable(getattr(import_module(module), function))


# --- circles and questions ----------------------------------------------------------------------

RUNNING = ("optsched.solving", "optsched.solvers")
UTILITIES = {"Minimum", "DelayedMinimum", "LexicographicMinimum", "Total", "Ratio"}


def sources() -> dict[str, Path]:
    """Files of both packages by the name of their module."""
    found = {}
    for package in ("optsched", "formulations"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, modules: Container[str]) -> Iterator[str]:
    """Modules that a file imports from, inside functions and for type checkers too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


def test_formulations_know_no_engine_session_or_solver() -> None:
    """They yield programs (`optsched.formulation.procedure`); type checkers are told of no engine either."""
    files = sources()
    found = []
    for name, path in files.items():
        if name.startswith(("formulations", "optsched.formulation")):
            others = imported(ast.parse(path.read_text()), files)
            found += [f"{name} imports {other}" for other in others if other.startswith(RUNNING)]
    assert found == []


def test_no_files_import_each_other_in_a_circle() -> None:
    """Facades count: who imports a name from a package depends on all that its ``__init__`` names.

    Inside functions and for type checkers too. What a value asks of a module above it goes through the table
    `CONVENIENCES`, whose entries are text.
    """
    files = sources()
    graph = nx.DiGraph()
    for name, path in files.items():
        graph.add_edges_from(
            (name, other) for other in imported(ast.parse(path.read_text()), files)
        )
    circles = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    assert circles == []


def test_a_utility_is_asked_and_not_recognised() -> None:
    """What belongs to a utility is in its class; only `optsched.program` knows which there are."""
    found = []
    for name, path in sources().items():
        if name.startswith("optsched.program"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                classes = {leaf.id for leaf in ast.walk(node.args[1]) if isinstance(leaf, ast.Name)}
                found += [f"{name}:{node.lineno}"] if classes & UTILITIES else []
    assert found == []
