"""What optsched did when the golden files were recorded, it does today: see record.py."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import record
from golden.record import STORED, close

import optsched
from optsched.cli.main import main
from optsched.simulation import read_simulation, simulation_bytes

pytestmark = pytest.mark.documentation

HERE = Path(__file__).parent
COLLEAGUE = HERE / "colleague"


def files(kind: str, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in (STORED / kind).glob(pattern))


def read(*name: str) -> Any:
    return json.loads(STORED.joinpath(*name).read_text())


def arrays(data: bytes) -> dict[str, bytes]:
    """The arrays of an npz file, to the last bit; how they are compressed depends on the version of zlib."""
    with np.load(io.BytesIO(data)) as file:
        return {name: file[name].tobytes() for name in file.files}


# --- commands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", record.PAGES)
def test_commands_print_the_same(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    recorded = record.read_commands(page)
    assert [line for line, _ in recorded] == record.lines_of(page)
    for (line, expected), (_, found) in zip(recorded, record.outputs(page, tmp_path), strict=True):
        assert found.splitlines() == expected.splitlines(), line


# --- objectives ----------------------------------------------------------------------------------------------------

ANSWERS = json.loads(record.OBJECTIVES.read_text())


@pytest.mark.oracle
@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_the_same(name: str) -> None:
    if name[0] != "@" and not record.ORACLES.is_dir():
        pytest.skip("the oracles are not beside this checkout")
    found = record.answers(name, record.instances()[name])
    assert set(found) == set(ANSWERS[name])
    assert {
        key: (found[key], then)
        for key, then in ANSWERS[name].items()
        if not close(found[key], then)
    } == {}


def test_every_instance_and_formulation_has_been_recorded() -> None:
    assert set(record.instances()) <= set(ANSWERS)
    assert set(record.FORMULATIONS) == set(ANSWERS["@quickstart"])


# --- stored files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", files("solutions"))
def test_stored_solutions_are_verified(name: str) -> None:
    instance = read("solutions", name)["instance"]["name"]
    model = STORED / "models" / "row-column.json" if instance == "fleet" else None
    source = STORED / "fleet.json" if instance == "fleet" else f"@{instance}"
    report = optsched.verify(source, STORED / "solutions" / name, performance=model)
    assert report.ok, report


@pytest.mark.parametrize("name", files("instances"))
def test_stored_instances_are_written_again_as_they_are(name: str, tmp_path: Path) -> None:
    again, path = tmp_path / name, STORED / "instances" / name
    assert main(["export", str(path), "-o", str(again), "-q"]) == 0
    if path.suffix == ".json":
        assert json.loads(again.read_text()) == json.loads(path.read_text())
    elif path.suffix == ".npz":
        assert arrays(again.read_bytes()) == arrays(path.read_bytes())
    else:
        assert again.read_text() == path.read_text()


@pytest.mark.parametrize("name", files("traces"))
def test_stored_traces_are_read(name: str) -> None:
    trace = optsched.load_trace(STORED / "traces" / name)
    document = trace.to_document()
    assert optsched.Trace.from_document(document).to_document() == document
    assert name.endswith("npz") or document == read("traces", name)


@pytest.mark.parametrize("name", files("states"))
def test_stored_states_are_exact(name: str) -> None:
    stored = read("states", name)
    state = optsched.RoundState.from_document(stored)
    assert json.loads(json.dumps(state.to_document())) == stored
    assert optsched.solve_round(state).fallback is None


@pytest.mark.parametrize("name", files("plans"))
def test_stored_plans_have_the_fields_and_the_worth_of_those_of_today(name: str) -> None:
    """Plans are written and not read. The first round of the same instance and policy has as good a plan."""
    stored, state = read("plans", name), optsched.RoundState.from_document(read("states", name))
    instance = optsched.load(f"@{stored['instance']['name']}")
    again = optsched.solve_round(optsched.RoundState.first(instance, state.policy)).to_document()
    again = json.loads(json.dumps(again))
    # Later versions may add fields; those of before keep their order.
    assert [key for key in again if key in stored] == list(stored)
    for key in ("start", "keep", "hold", "actions", "allocation"):
        assert {field for row in again[key] for field in row} == {
            field for row in stored[key] for field in row
        }, key
    for key in (
        "format",
        "round",
        "now",
        "until",
        "instance",
        "formulation",
        "status",
        "objective",
        "bound",
    ):
        assert close(again[key], stored[key]), key


@pytest.mark.parametrize("name", files("journals"))
def test_stored_journals_are_recovered(name: str, tmp_path: Path) -> None:
    journal = Path(shutil.copytree(STORED / "journals" / name, tmp_path / name))
    with optsched.Scheduler.recover(journal) as scheduler:
        state = scheduler.state
        plan = scheduler.solve(now=state.until)
    assert plan.fallback is None
    assert optsched.replay(journal, 5).plan.diff() == plan.diff()


@pytest.mark.parametrize("name", files("models"))
def test_stored_models_become_part_of_an_instance(name: str, tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    assert (
        main(
            [
                "export",
                str(STORED / "fleet.json"),
                "--model",
                str(STORED / "models" / name),
                "-o",
                str(path),
            ]
        )
        == 0
    )
    performance = json.loads(path.read_text())["performance"]
    assert {"format": "optsched-model/1", **performance} == read("models", name)


@pytest.mark.parametrize("name", files("simulations"))
def test_stored_simulations_are_written_again_as_they_are(name: str) -> None:
    path = STORED / "simulations" / name
    again, stored = arrays(simulation_bytes(read_simulation(path))), arrays(path.read_bytes())
    assert arrays(again.pop("instance")) == arrays(stored.pop("instance"))
    assert again == stored


# --- a package of somebody else ------------------------------------------------------------------------------------

OBJECTIVES = {
    "formulation": 0.21039813073993086,
    "options": 0.4167544752292217,
    "constraint": 0.1852915765077421,
    "constraint without classes": 0.1852915765077421,
    "labels": 264.4646,
    "own row": 174.7,
    "model": 8.85,
    "solver": 25176.428837102856,
    "all": 1 / 6,
    "starts": 8,
}


def run(*command: str) -> Any:
    """What a command prints as JSON where the package is on the path."""
    path = os.pathsep.join([str(COLLEAGUE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.process
def test_a_package_of_somebody_else_works_as_before() -> None:
    found = run(sys.executable, str(COLLEAGUE / "use.py"))
    assert list(found) == list(OBJECTIVES) and close(
        list(found.values()), list(OBJECTIVES.values())
    )


@pytest.mark.process
def test_its_parts_can_be_named_on_the_shell() -> None:
    command = str(Path(sys.executable).parent / "optsched")
    limit = "tenant-limit:tenant=vision,pool=v100,gpus=0.1"
    solution = run(
        command,
        "solve",
        "@quickstart",
        "-f",
        "least-slowdown",
        "-C",
        limit,
        "--solver",
        "scipy",
        "--json",
    )
    assert solution["certificate"]["ok"] and close(solution["objective"], OBJECTIVES["constraint"])
    plan = run(command, "round", "@quickstart", "--ranking", "longest-wait", "--json")
    assert len(plan["start"]) == OBJECTIVES["starts"]
