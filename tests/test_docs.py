"""The documentation is true: its Python runs, its tables are those of the code, its links lead somewhere.

Its shell commands are run by tests/golden/test_golden.py, which also compares what they print.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import BaseModel

import optsched
from optsched import RoundPolicy, errors, registry
from optsched.instance import documents
from optsched.ranking import RankingOptions
from optsched.rounds import Scheduler
from optsched.rounds.ledger import Service

# Private names: documents, pages and names are compared with the code
from optsched.rounds.plan_document import PlanDocument
from optsched.rounds.state import RoundDocument
from optsched.solution import Status, Termination
from optsched.solution import document as solution_documents

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import notebooks  # noqa: E402
from notebooks import code_cells, notebook, printed, with_outputs  # noqa: E402

pytestmark = pytest.mark.documentation

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))),
]
BIN = Path(sys.executable).parent

Failures = dict[str, list[str]]
"""Tracebacks, by the group of what raised them."""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )


def sections(page: str) -> dict[str, str]:
    """Text under each heading."""
    parts = re.split(r"^#+ (.+)$", (ROOT / page).read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def table(text: str) -> list[list[str]]:
    """Cells of the first table in a text, without its head."""
    lines = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert lines is not None
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in lines[0].splitlines()[2:]
    ]


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,  # ends a hang alone: all pages run in one process, beside other work too
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


# --- code ----------------------------------------------------------------------------------------------------------


RUNNER = """
import json, os, pathlib, runpy, sys, traceback

here, failures = pathlib.Path().resolve(), {}
for folder in sorted(folder for folder in here.iterdir() if folder.is_dir()):
    os.chdir(folder)
    failures[folder.name] = []
    for block in sorted(folder.iterdir()):
        try:
            runpy.run_path(block.name, run_name="__main__")
        except BaseException:
            failures[folder.name].append(traceback.format_exc())
(here / "failures.json").write_text(json.dumps(failures))
"""


def failures_of(
    programs: dict[str, list[str]], folder: Path, *options: str, **environment: str
) -> Failures:
    """What programs raise, each in a namespace of its own and in the folder of its group, all in one process."""
    for group, codes in programs.items():
        (folder / group).mkdir()
        for number, code in enumerate(codes):
            (folder / group / f"block{number}.py").write_text(code)
    run([sys.executable, *options, "-c", RUNNER], folder, **environment)
    found: Failures = json.loads((folder / "failures.json").read_text())
    return found


WITH_PYTHON = [
    page for page in PAGES if page != "docs/how-to/extending.md" and blocks(page, "python")
]


def programs_of(page: str) -> list[str]:
    """The blocks of a page; those of a tutorial are one program."""
    found = blocks(page, "python")
    return ["\n".join(found)] if page.startswith("docs/tutorials/") else found


@pytest.fixture(scope="module")
def of_pages(tmp_path_factory: pytest.TempPathFactory) -> Failures:
    """What the blocks of each page raise, warnings included."""
    programs = {Path(page).stem: programs_of(page) for page in WITH_PYTHON}
    return failures_of(programs, tmp_path_factory.mktemp("pages"), "-W", "error")


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_runs(page: str, of_pages: Failures) -> None:
    assert of_pages[Path(page).stem] == []


def test_the_readme_s_python_is_short_and_says_that_it_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (code,) = blocks("README.md", "python")
    assert len([line for line in code.splitlines() if line]) == 5
    exec(code, {})
    assert capsys.readouterr().out.splitlines()[0].endswith(" True")


def test_the_readme_s_commands_are_targets() -> None:
    wanted = set(re.findall(r"^    make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert wanted == {"demo", "test"}
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets >= wanted | {"help", "lint", "types", "bench", "docs", "clean"}


@pytest.fixture(scope="module")
def colleague(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package that docs/how-to/extending.md makes, as pip would install it."""
    folder = tmp_path_factory.mktemp("colleague")
    (folder / "colleague.py").write_text("\n".join(blocks("docs/how-to/extending.md", "python")))
    (project,) = (
        tomllib.loads(text)["project"] for text in blocks("docs/how-to/extending.md", "toml")
    )
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    metadata = folder / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (metadata / "entry_points.txt").write_text(points)
    return folder


EXTENSIONS = {
    "formulation": """
solution = optsched.solve("@quickstart", "least-slowdown")
level = min(rate / best(solution, job) / job.weight for job, rate in rates(solution))
assert abs(level - solution.objective) < 1e-9
plain = optsched.solve("@quickstart", "least-slowdown", weighted=False)
assert plain.objective > solution.objective
""",
    "constraint": """
limit = {"kind": "tenant-limit", "tenant": "vision", "pool": "v100", "gpus": 0.1}
free = optsched.solve("@quickstart", "least-slowdown")
solution = optsched.solve("@quickstart", "least-slowdown", constraints=[limit])
assert solution.objective < free.objective - 1e-3 and solution.duals["tenant-limit"][0] > 0
tenants = {job.id: job.tenant for job in solution.instance.jobs}
rows = [row for row in solution.allocation.to_records() if tenants[row["job"]] == "vision" and row["pool"] == "v100"]
assert abs(sum(row["gpus"] * row["fraction"] for row in rows) - 0.1) < 1e-6
jobwise = optsched.solve("@quickstart", "least-slowdown", constraints=[limit], classes=False)
assert abs(jobwise.objective - solution.objective) < 1e-9
""",
    "model": """
document = {
    "format": "optsched-instance/1",
    "cluster": {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 4}]},
    "performance": {"model": "peak", "tflops": {"v100": 15.7}, "efficiency": 0.5},
    "workloads": {"net": {"parameters": {"tflop": 2.0}}},
    "jobs": [{"id": "a", "workload": "net", "gpus": 2}, {"id": "b", "throughput": {"v100": 1.0}}],
}
solution = optsched.solve(optsched.Instance.from_document(document), "max-throughput")
assert abs(solution.objective - (0.5 * 15.7 * 2 / 2.0 + 1.0)) < 1e-9
document["performance"]["flops"] = 1
try:
    optsched.compile(optsched.Instance.from_document(document))
except optsched.errors.InvalidInput as error:
    assert "performance.flops" in str(error)
""",
    "solver": """
for name, formulation in (("@quickstart", "max-min-fairness"), ("@packing", "makespan"), ("@large", "max-throughput")):
    ours, theirs = (optsched.solve(name, formulation, solver=solver) for solver in ("highs", "scipy"))
    assert theirs.status == "optimal" and theirs.certificate.ok and theirs.certificate.proof == "dual"
    assert abs(ours.objective - theirs.objective) <= 1e-7 * abs(ours.objective), (name, formulation)
assert optsched.solve("@infeasible", solver="scipy").status == "infeasible"
try:
    optsched.solve("@quickstart", "max-throughput", solver="scipy", integral=True)
except optsched.errors.SolverUnavailable as error:
    assert "scipy" in str(error) and "integer" in str(error)
else:
    raise AssertionError
from optsched.conformance import check_solver, summary
results = check_solver("scipy")
assert [item for item in results if item.verdict == "failed"] == []
assert summary(results)["passed"] > 30
""",
}
HELPERS = """
import optsched, optsched.errors

def rates(solution):
    return [(job, solution.throughput[job.id]) for job in solution.instance.jobs]

def best(solution, job):
    C = solution.allocation.classes
    row = solution.instance.jobs_table.names.index(job.id)
    return C.rate_a[C.alone & (C.class_a == C.of_job[row])].max()
"""


@pytest.fixture(scope="module")
def of_extensions(colleague: Path, tmp_path_factory: pytest.TempPathFactory) -> Failures:
    programs = {what: [HELPERS + code] for what, code in EXTENSIONS.items()}
    return failures_of(programs, tmp_path_factory.mktemp("extensions"), PYTHONPATH=str(colleague))


@pytest.mark.parametrize("what", EXTENSIONS)
def test_an_extension_works(what: str, of_extensions: Failures) -> None:
    assert of_extensions[what] == []


def test_extensions_can_be_named_on_the_shell(colleague: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs/how-to/extending.md").read_text()
    (line,) = re.findall(r"`(optsched solve instance\.json [^`]*)`", text)
    program, *arguments = shlex.split(line.replace("instance.json", "@quickstart"))
    run([str(BIN / program), *arguments], tmp_path, PYTHONPATH=str(colleague))


# --- formats -------------------------------------------------------------------------------------------------------

INSTANCE_SECTIONS: dict[str, type[BaseModel]] = {
    "Top level": documents.InstanceDocument,
    "Cluster": documents.ClusterDocument,
    "Pool": documents.PoolDocument,
    "Node": documents.NodeDocument,
    "Bandwidth": documents.BandwidthDocument,
    "Partition": documents.PartitionDocument,
    "Resource": documents.ResourceDocument,
    "Performance": documents.PerformanceDocument,
    "Workload": documents.WorkloadDocument,
    "Tenant": documents.TenantDocument,
    "Side constraint": documents.ConstraintDocument,
    "Job": documents.JobDocument,
    "GPU range": documents.GpuRange,
    "Option": documents.OptionDocument,
    "Running": documents.RunningDocument,
    "History": documents.HistoryDocument,
    "Co-location": documents.ColocationDocument,
}
SOLUTION_SECTIONS: dict[str, type[BaseModel]] = {
    "Solution format": solution_documents.SolutionDocument,
    "Instance": solution_documents.InstanceReference,
    "Solver": solution_documents.SolverDocument,
    "Certificate": solution_documents.CertificateDocument,
    "Allocation": solution_documents.AllocationRow,
    "Unplaced": solution_documents.UnplacedRow,
    "Rounds": solution_documents.RoundsDocument,
    "Slice": solution_documents.SliceDocument,
}


def default_of(model: type[BaseModel], name: str) -> str:
    info = model.model_fields[name]
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    return f"`{json.dumps(value.model_dump() if isinstance(value, BaseModel) else value)}`"


@pytest.mark.parametrize("section", INSTANCE_SECTIONS)
def test_the_fields_of_an_instance(section: str) -> None:
    model = INSTANCE_SECTIONS[section]
    rows = table(sections("docs/reference/instance-format.md")[section])
    assert [name for name, *_ in rows] == [f"`{name}`" for name in model.model_fields]
    assert {name: default for name, default, _ in rows} == {
        f"`{name}`": default_of(model, name) for name in model.model_fields
    }


def test_every_document_has_a_section() -> None:
    parts = {documents.Document, documents.HeaderDocument}
    models = {
        value
        for value in vars(documents).values()
        if isinstance(value, type)
        and issubclass(value, BaseModel)
        and value.__module__ == documents.__name__
    }
    assert set(INSTANCE_SECTIONS.values()) == models - parts


def test_the_fields_of_a_policy() -> None:
    rows = table(sections("docs/reference/rounds.md")["Policy"])
    assert {name: default for name, default, _ in rows} == {
        f"`{name}`": "`[]`" if name == "constraints" else default_of(RoundPolicy, name)
        for name in RoundPolicy.model_fields
    }


def test_the_fields_of_states_and_plans() -> None:
    states, plans = re.findall(
        r"(?:^\|.*\|\n)+",
        sections("docs/reference/rounds.md")["State and plan as documents"],
        re.MULTILINE,
    )
    for text, model in ((states, RoundDocument), (plans, PlanDocument)):
        assert [name.strip("`") for name, _ in table(text)] == list(model.model_fields)
    assert [field.name for field in fields(Service) if f"`{field.name}`" not in states] == []


def test_the_events_are_methods_of_a_scheduler() -> None:
    cells = [name for name, _ in table(sections("docs/reference/rounds.md")["Events"])]
    told = {name for cell in cells for name in re.findall(r"`(\w+)\(", cell)} | {"observe_many"}
    events = {name for name, owner in vars(Scheduler).items() if name[0] != "_" and callable(owner)}
    assert told == events - {"close"} and "recover" in vars(Scheduler)


@pytest.mark.parametrize("section", SOLUTION_SECTIONS)
def test_the_fields_of_a_solution(section: str) -> None:
    rows = table(sections("docs/reference/solution-format.md")[section])
    assert {name for name, _ in rows} == {
        f"`{name}`" for name in SOLUTION_SECTIONS[section].model_fields
    }


def test_the_values_of_a_solution() -> None:
    rows = {
        name.strip("`"): text
        for name, text in table(sections("docs/reference/solution-format.md")["Solution format"])
    }
    for name, values in (("termination", Termination), ("status", Status)):
        assert [value for value in values if f"`{value}`" not in rows[name]] == []


def test_the_example_instance_solves() -> None:
    (text,) = blocks("docs/reference/instance-format.md", "json")
    instance = optsched.Instance.from_document(json.loads(text))
    answer = optsched.solve(instance, "max-min-fairness")
    assert answer.status == "optimal"
    assert not answer.unplaced
    assert len(answer.throughput) == 4


# --- tables of the architecture ------------------------------------------------------------------------------------


def test_the_layers_are_those_of_the_contract() -> None:
    told = [
        name.rstrip("/")
        for cell, _ in table(sections("docs/developers/architecture.md")["Data flow"])
        for name in re.findall(r"`([^`]+)`", cell)
    ]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    rank = {
        name.strip(): row for row, layer in enumerate(reversed(layers)) for name in layer.split("|")
    }
    assert set(told) == set(rank)
    ranks = [rank[name] for name in told if name not in ("errors", "shipped", "arrays")]
    assert ranks == sorted(ranks, reverse=True)


def test_the_capabilities_of_the_solvers() -> None:
    rows = table(sections("docs/reference/solvers.md")["Back-ends"])
    told = {name.strip("`"): set(text.split(", ")) for name, _, text in rows}
    assert told == {
        name: registry.load_solver(name).capabilities for name in registry.names("solver")
    }


def test_the_exit_codes() -> None:
    told = {
        int(code) for code, _ in table(sections("docs/reference/command-line.md")["Exit codes"])
    }
    known = {value.exit_code for value in vars(errors).values() if isinstance(value, type)}
    assert told >= known
    assert told == {0, 1, 2, 3, 4, 5, 6, 7, 130, 143}


def test_the_formulations_are_counted() -> None:
    count = len({registry.load_formulation(name).name for name in registry.names("formulation")})
    assert f"lists all {count} " in (ROOT / "docs/concepts/objectives.md").read_text()


def test_the_side_constraints_are_listed_with_their_options() -> None:
    rows = table(sections("docs/reference/constraints.md")["Side constraints"])
    told = {
        re.findall(r"`([\w-]+)`", kind)[0]: re.findall(r"`(\w+)`", options)
        for kind, _, options in rows
    }
    owners = {kind: registry.load_constraint(kind) for kind in registry.names("constraint")}
    assert {kind: set(options) for kind, options in told.items()} == {
        kind: set(owner.Options.model_fields) for kind, owner in owners.items()
    }


def test_the_rankings_are_listed_with_their_options() -> None:
    owners = {owner.name: owner for owner in map(registry.load_ranking, registry.names("ranking"))}
    rows = table(sections("docs/reference/rankings.md")["The catalogue"])
    told = {name.strip("`"): re.findall(r"`([\w-]+)`", options) for name, _, options in rows}
    common = set(RankingOptions.model_fields)
    assert told == {
        name: [own for own in owners[name].Options.model_fields if own not in common]
        for name in told
    }
    assert set(told) == set(owners)
    text = sections("docs/reference/rankings.md")["The catalogue"]
    words = " ".join(text.split())
    assert [
        alias
        for owner in owners.values()
        for alias in owner.aliases
        if f"`{alias}` for `{owner.name}`" not in words
    ] == []
    described = table(text[text.index("| option | of |") :])
    assert {(ranking.strip("`"), option.strip("`")) for option, ranking, *_ in described} == {
        *((name, option) for name, options in told.items() for option in options),
        *(("all", option) for option in common),
    }


# --- notebooks -----------------------------------------------------------------------------------------------------

TUTORIALS = [page for page in PAGES if page.startswith("docs/tutorials/")]


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_notebook_is_its_page(page: str) -> None:
    """With the outputs of a run; `test_a_notebook_runs_in_a_kernel` runs it again."""
    path = ROOT / page
    found = path.with_suffix(".ipynb").read_text("utf-8")
    cells = code_cells(json.loads(found)["cells"])
    made = with_outputs(notebook(path.read_text("utf-8")), [printed(cell) for cell in cells])
    assert found == made, "run: cd docs && python notebooks.py"
    silent = [cell["source"] for cell in cells if not printed(cell) and "print(" in cell["source"]]
    assert silent == []
    code = [cell["source"] for cell in cells]
    lines = [line for block in code for line in block.splitlines()]
    assert [line[1:] for line in lines if line.startswith("!")] == [
        line for block in blocks(page, "sh") for line in block.splitlines()
    ]
    python = [block for block in code if block[0] not in "!%"]
    assert python == [block.strip("\n") for block in blocks(page, "python")]


# --- links ---------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    here = ROOT / page
    for target in re.findall(r"\]\(([^)]+)\)", here.read_text()):
        assert not target.startswith("http"), f"{target}: the documentation stands on its own"
        path, _, anchor = target.partition("#")
        place = (here.parent / path).resolve() if path else here
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_names_of_pages_differ() -> None:
    """Recorded commands are kept by the name of their page."""
    names = [Path(page).stem for page in PAGES]
    assert sorted(names) == sorted(set(names))


def test_every_page_is_in_the_navigation() -> None:
    nav = re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(f"docs/{name}" for name in nav) == sorted(
        page for page in PAGES if page.startswith("docs/")
    )


# Its commands are golden as well: tests/golden/test_golden.py runs them.
SHELL = pytest.param("docs/tutorials/shell.md", marks=pytest.mark.study)


@pytest.mark.parametrize("page", [SHELL if page == SHELL.values[0] else page for page in TUTORIALS])
def test_a_notebook_runs_in_a_kernel(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nbclient", "ipykernel"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install -e '.[dev]'")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    text = (ROOT / page).with_suffix(".ipynb").read_text("utf-8")
    stored = [printed(cell) for cell in code_cells(json.loads(text)["cells"])]
    outputs = notebooks.run(text)
    assert [bool(output) for output in outputs] == [bool(output) for output in stored]
    failed = [output for output in outputs if "error:" in output]
    assert failed == []
