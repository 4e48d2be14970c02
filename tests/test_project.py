"""The project as a whole: what importing loads, catalogues, packaging, and that the solvers can live together."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

import formulations
import formulations.constraints
import formulations.rankings
import optsched
from optsched import registry
from optsched.formulation import Formulation, SideConstraint

# Private names: documents, pages and names are compared with the code
from optsched.formulation.options import own_options
from optsched.ranking import Ranking, RankingOptions

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEAVY = (
    "cvxpy",
    "ortools",
    "pulp",
    "matplotlib",
    "highspy",
    "clarabel",
    "networkx",
    "pandas",
    "yaml",
    "rich",
    "typer",
)
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".cff", ".txt", ".sh", ".csv", ""}
MAKEABLE = {
    ".git", ".venv", "__pycache__", "build", "dist", "out", "site", ".mypy_cache", ".ruff_cache", ".pytest_cache",
    ".import_linter_cache", ".hypothesis",
}  # fmt: skip
MACHINE_PATH = re.compile(r"(?<![\w.:/$}-])/(?:home|root|Users|work|opt|mnt|srv)/[\w.]")


def run_python(program: str, **options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def files() -> list[Path]:
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(
            name for name in folders if name not in MAKEABLE and not name.endswith(".egg-info")
        )
        found += [Path(folder, name) for name in sorted(names)]
    return found


# --- importing -----------------------------------------------------------------------------------------------------


def test_importing_loads_nothing_heavy() -> None:
    modules = "optsched, optsched.api, optsched.report, optsched.verify, formulations"
    loaded = run_python(f"import sys, {modules}; print(' '.join(sys.modules))").split()
    assert not set(HEAVY) & set(loaded)


def packages_of(modules: Iterable[str]) -> set[str]:
    """The packages on the way to some modules, and these: "a.b.c" is in "a", "a.b" and "a.b.c"."""
    return {
        ".".join(name.split(".")[:depth])
        for name in modules
        for depth in range(1, name.count(".") + 2)
    }


def test_solving_a_linear_program_loads_no_part_that_it_does_not_use() -> None:
    program = "import sys, optsched; optsched.solve('@quickstart'); print(' '.join(sys.modules))"
    loaded = packages_of(run_python(program).split())
    foreign = {
        "cvxpy",
        "ortools",
        "pulp",
        "matplotlib",
        "clarabel",
        "networkx",
        "pandas",
        "yaml",
        "rich",
        "typer",
    }
    assert not loaded & (
        foreign
        | {"scipy.optimize", "scipy.linalg", "scipy.sparse.linalg", "scipy.special"}
        | {"multiprocessing", "optsched.processes"}
    )
    assert not loaded & {
        "optsched.benchmarking", "optsched.cli", "optsched.solving.column_generation", "optsched.formats",
        "optsched.performance.composed.online", "optsched.placement.problem", "optsched.rounds",
        "optsched.program.side_rows", "optsched.program.timeline", "optsched.solution.document",
        "optsched.solution.plan", "optsched.solution.schedule", "optsched.verify",
    }  # fmt: skip


def test_a_command_loads_neither_the_other_commands_nor_their_parts() -> None:
    program = (
        "import sys; from optsched.cli.main import main; "
        "code = main(['simulate', '@quickstart', '-p', 'las', '--until', '1h', '-q']); "
        "print(code, *sys.modules)"
    )
    code, *modules = run_python(program).split()
    loaded = packages_of(modules)
    assert code == "0"
    assert "optsched.simulation" in loaded
    assert not loaded & {
        "cvxpy",
        "ortools",
        "pulp",
        "matplotlib",
        "clarabel",
        "networkx",
        "yaml",
        "scipy.optimize",
    }
    assert not loaded & {
        "optsched.cli.bench", "optsched.cli.solve", "optsched.conformance", "optsched.solving.column_generation",
        "optsched.generate", "optsched.report", "optsched.sensitivity", "optsched.verify",
    }  # fmt: skip


def test_public_names_resolve() -> None:
    program = "import json, optsched; print(json.dumps([name for name in dir(optsched) if getattr(optsched, name)]))"
    names = json.loads(run_python(program))
    assert names == optsched.__all__ == sorted(set(optsched.__all__))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        optsched.nothing  # noqa: B018


# --- the catalogue of formulations ---------------------------------------------------------------------------------


def classes_in(package: ModuleType, base: type) -> dict[str, type]:
    """Concrete classes defined in the files of a package's own folder, by "module:Class"."""
    found = {}
    for path in sorted(Path(package.__file__ or "").parent.glob("*.py")):
        name = package.__name__ if path.stem == "__init__" else f"{package.__name__}.{path.stem}"
        for owner in vars(importlib.import_module(name)).values():
            if isinstance(owner, type) and issubclass(owner, base) and owner.__module__ == name:
                found |= {} if inspect.isabstract(owner) else {f"{name}:{owner.__name__}": owner}
    return found


FORMULATIONS = classes_in(formulations, Formulation)
CONSTRAINTS = classes_in(formulations.constraints, SideConstraint)
RANKINGS = classes_in(formulations.rankings, Ranking)


def test_the_catalogue_of_formulations_is_the_folder() -> None:
    wanted = {
        name: place
        for place, owner in FORMULATIONS.items()
        for name in (owner.name, *owner.aliases)
    }
    assert wanted == formulations.CATALOGUE


def test_the_catalogue_of_constraints_is_the_folder() -> None:
    assert {
        owner.kind: place for place, owner in CONSTRAINTS.items()
    } == formulations.constraints.CATALOGUE


def test_the_catalogue_of_rankings_is_the_folder() -> None:
    wanted = {
        name: place for place, owner in RANKINGS.items() for name in (owner.name, *owner.aliases)
    }
    assert wanted == formulations.rankings.CATALOGUE
    assert len({place.partition(":")[0] for place in RANKINGS}) == len(RANKINGS), (
        "one file per ranking"
    )


@pytest.mark.parametrize("what", registry.GROUPS)
def test_everything_in_a_catalogue_loads(what: str) -> None:
    load = {
        "formulation": registry.load_formulation,
        "constraint": registry.load_constraint,
        "performance model": registry.load_model,
        "solver": registry.load_solver,
        "ranking": registry.load_ranking,
    }[what]
    for name in registry.names(what):
        owner = load(name)
        known = {
            getattr(owner, "name", None),
            getattr(owner, "kind", None),
            *getattr(owner, "aliases", ()),
        }
        assert name in known


@pytest.mark.parametrize("place", [*FORMULATIONS, *CONSTRAINTS])
def test_a_docstring_is_the_mathematics(place: str) -> None:
    owner = (FORMULATIONS | CONSTRAINTS)[place]
    text = inspect.getdoc(owner) or ""
    lines = [line.strip() for line in text.splitlines()]
    assert "References" in lines
    if place in FORMULATIONS:
        assert {"Program", "Rule"} & set(lines)
    else:
        assert re.search("<=|>=|==", text)
    options = set(own_options(owner))
    if options:
        told = lines[lines.index("Options") :]
        assert options <= {line.split()[0] for line in told if line}


@pytest.mark.parametrize("place", RANKINGS)
def test_a_docstring_is_the_rule(place: str) -> None:
    owner = RANKINGS[place]
    text = inspect.getdoc(owner) or ""
    assert "Key" in text.splitlines()
    options = set(owner.Options.model_fields) - set(RankingOptions.model_fields)
    _, _, documented = text.partition("\nOptions\n")
    section, _, _ = documented.partition("\n\n")
    # A line that is indented deeper continues the option above it.
    assert set(re.findall(r"^ {4}(\w+)", section, re.MULTILINE)) == options


# --- the files -----------------------------------------------------------------------------------------------------


def test_no_file_names_a_place_on_somebody_s_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in files()
        if path.suffix in TEXT and path.stat().st_size < 5_000_000
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


def test_source_files_have_docstrings() -> None:
    sources = {
        path: path.read_text()
        for folder in ("optsched", "formulations", "examples", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "conftest.py"
    }
    bare = [
        str(path)
        for path, text in sources.items()
        if text.strip() and not re.match(r'(#.*\n|\s)*r?"""\S', text)
    ]
    assert bare == []


def test_scripts_can_be_run() -> None:
    for path in (ROOT / ".ci" / "run", *(ROOT / "examples").glob("*.py")):
        assert os.access(path, os.X_OK), path
        assert path.read_text().startswith("#!/usr/bin/env "), path


# --- packaging -----------------------------------------------------------------------------------------------------


def test_highspy_is_pinned_below_the_versions_that_break_ortools() -> None:
    requirements = [Requirement(text) for text in PYPROJECT["project"]["dependencies"]]
    pins = {requirement.name: requirement.specifier for requirement in requirements}
    assert list(pins["highspy"].filter(["1.12.0", "1.13.1", "1.14.0", "1.15.1", "2.0.0"])) == [
        "1.12.0",
        "1.13.1",
    ]
    assert metadata.version("highspy") in pins["highspy"]
    assert metadata.version("ortools") in pins["ortools"]


def test_the_base_install_has_what_the_code_imports() -> None:
    base = {Requirement(text).name for text in PYPROJECT["project"]["dependencies"]} | {
        "pydantic_core"
    }
    known = {*sys.stdlib_module_names, *base, "yaml", "optsched", "formulations"}
    imported = set()
    for path in [*(ROOT / "optsched").rglob("*.py"), *(ROOT / "formulations").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    optional = {
        "numba",
        "sklearn",
        "threadpoolctl",
        "pandas",
    }  # the extras fast and learn; to_frame
    assert imported - known == optional


def test_the_version_is_told_once() -> None:
    version = PYPROJECT["project"]["version"]
    assert optsched.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_entry_points_are_installed() -> None:
    installed = {
        (point.group, point.name, point.value)
        for point in metadata.distribution("optsched").entry_points
    }
    stated = {("console_scripts", *item) for item in PYPROJECT["project"]["scripts"].items()}
    stated |= {
        (group, *item)
        for group, points in PYPROJECT["project"]["entry-points"].items()
        for item in points.items()
    }
    assert installed == stated
    assert {group for group, *_ in stated} == {"console_scripts", *registry.GROUPS.values()}
    for point in metadata.distribution("optsched").entry_points:
        assert point.load() is not None


def test_the_wheel_has_what_it_needs() -> None:
    wheel = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["optsched", "formulations"]
    assert wheel["force-include"] == {"instances": "optsched/_instances"}
    assert all((ROOT / package / "py.typed").is_file() for package in wheel["packages"])


# --- the solvers in one process ------------------------------------------------------------------------------------

KNAPSACK = """
import numpy as np
value, weight, capacity = [60, 100, 120, 35, 75, 50, 90, 20], [10, 20, 30, 7, 18, 9, 25, 4], 60

def by_highspy():
    import highspy
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    take = [highs.addBinary() for _ in value]
    highs.addConstr(sum(w * t for w, t in zip(weight, take)) <= capacity)
    highs.maximize(sum(v * t for v, t in zip(value, take)))
    return highs.getInfo().objective_function_value

def by_cp_sat():
    from ortools.sat.python import cp_model
    model, solver = cp_model.CpModel(), cp_model.CpSolver()
    take = [model.new_bool_var("") for _ in value]
    model.add(sum(w * t for w, t in zip(weight, take)) <= capacity)
    model.maximize(sum(v * t for v, t in zip(value, take)))
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value

def by_scip():
    from ortools.linear_solver.python import model_builder
    model = model_builder.Model()
    take = [model.new_bool_var(f"x{i}") for i in range(len(value))]
    model.add(sum(w * t for w, t in zip(weight, take)) <= capacity)
    model.maximize(sum(v * t for v, t in zip(value, take)))
    solver = model_builder.Solver("SCIP")
    assert solver.solve(model) == model_builder.SolveStatus.OPTIMAL
    return solver.objective_value

def by_cbc():
    import pulp
    problem = pulp.LpProblem("knapsack", pulp.LpMaximize)
    take = [pulp.LpVariable(f"x{i}", cat="Binary") for i in range(len(value))]
    problem += pulp.lpDot(value, take)
    problem += pulp.lpDot(weight, take) <= capacity
    problem.solve(pulp.PULP_CBC_CMD(msg=False))
    return pulp.value(problem.objective)

def by_cvxpy():
    import cvxpy as cp
    take = cp.Variable(len(value), boolean=True)
    return cp.Problem(cp.Maximize(np.array(value) @ take), [np.array(weight) @ take <= capacity]).solve(solver=cp.HIGHS)

def by_scipy():
    from scipy.optimize import LinearConstraint, milp
    rows = LinearConstraint(np.array([weight]), ub=capacity)
    return -milp(-np.array(value), constraints=rows, integrality=np.ones(len(value)), bounds=(0, 1)).fun

def by_hand():
    from itertools import product
    fits = (x for x in product((0, 1), repeat=len(value)) if np.dot(x, weight) <= capacity)
    return max(float(np.dot(x, value)) for x in fits)
"""
SOLVERS = (
    "highspy",
    "ortools.sat.python.cp_model",
    "ortools.linear_solver.python.model_builder",
    "pulp",
    "cvxpy",
)


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(
            SOLVERS, id="highspy first", marks=pytest.mark.study
        ),  # as in solvers/test_import_orders.py
        pytest.param(SOLVERS[::-1], id="cvxpy first"),
    ],
)
def test_solvers_share_a_process_in_any_order(order: tuple[str, ...]) -> None:
    imports = "".join(f"import {name}\n" for name in order)
    program = f"""{KNAPSACK}
answers = {{name: float(solve()) for name, solve in list(globals().items()) if name.startswith("by_")}}
import json, cvxpy, pulp, optsched
answers["highs in cvxpy"] = "HIGHS" in cvxpy.installed_solvers()
answers["highs in pulp"] = "HiGHS" in pulp.listSolvers(onlyAvailable=True)
answers["optsched"] = [optsched.solve("@quickstart", solver=s).objective for s in ("highs", "clarabel")]
print(json.dumps(answers))
"""
    answers = json.loads(run_python(imports + program).splitlines()[-1])
    assert answers.pop("highs in cvxpy")
    assert answers.pop("highs in pulp")
    first, second = answers.pop("optsched")
    assert first == pytest.approx(second, rel=1e-7)
    best = answers.pop("by_hand")
    assert answers == {name: pytest.approx(best, abs=1e-6) for name in answers}
    assert len(answers) == 6
