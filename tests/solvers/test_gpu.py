"""Back-ends on GPUs, with other libraries and another driver in the places of NVIDIA's: no GPU is needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import optsched
from optsched.cli.doctor import check_solvers
from optsched.cli.main import main
from optsched.errors import SolverUnavailable, UsageError
from optsched.program import LinearProgram
from optsched.registry import load_solver
from optsched.solution import Termination
from optsched.solvers import Limits, gpu
from optsched.solving import Engine
from optsched.solving.choice import others

STAND_INS = Path(__file__).parent / "gpu_stand_ins"
INSTALLED = {"cupdlpx": "cupdlpx", "cuopt": "cuopt-cu12"}
NAMES = sorted(INSTALLED)


class Driver:
    """In the place of the library that tells of GPUs."""

    def __init__(self, devices: int) -> None:
        self.devices = devices

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = self.devices
        return 0


def with_devices(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "CDLL", lambda name: Driver(count))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, and both libraries."""
    with_devices(1, monkeypatch)
    for distribution in INSTALLED.values():
        info = tmp_path / f"{distribution.replace('-', '_')}-7.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 7.0\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(STAND_INS)
    for module in ("cupdlpx", "cuopt", "cuopt.linear_programming", "minimum"):
        monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_is_said_in_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_devices(0, monkeypatch)
    with pytest.raises(SolverUnavailable) as error:
        load_solver(name).version()
    assert str(error.value) == f"solver {name} needs an NVIDIA GPU: no CUDA device is here"
    with_devices(2, monkeypatch)
    with pytest.raises(SolverUnavailable, match="is not installed; pip install 'optsched"):
        load_solver(name).version()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(SolverUnavailable, match="no CUDA device"):
        optsched.solve("@quickstart", solver=name)


def test_solvers_and_doctor_say_it_and_nothing_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_devices(0, monkeypatch)
    main(["solvers", "--json"])
    listed = {item["name"]: item for item in json.loads(capsys.readouterr().out)["solvers"]}
    monkeypatch.setattr("optsched.registry.names", lambda what: NAMES)
    checks = list(check_solvers())
    assert [check.verdict for check in checks] == ["missing", "missing"]
    for check in checks:
        item = listed[check.name.removeprefix("solver ")]
        assert item["version"] is None and item["reason"] == check.words
        assert "no CUDA device" in check.words


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("formulation", ["max-min-fairness", "makespan", "max-throughput"])
def test_the_answer_is_repaired_and_certified(name: str, formulation: str, libraries: None) -> None:
    solution = optsched.solve("@quickstart", formulation, solver=name)
    exact = optsched.solve("@quickstart", formulation, solver="highs")
    assert solution.ok and solution.certificate.ok and solution.solver is not None
    assert (solution.solver.name, solution.solver.version) == (name, "7.0")
    assert solution.bound_source == "dual" and (solution.gap or 0.0) <= 1e-6
    assert solution.objective == pytest.approx(exact.objective, rel=1e-6)


@pytest.mark.parametrize("maximise", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_multipliers_are_derivatives_of_either_sense(
    name: str, maximise: bool, libraries: None
) -> None:
    program = LinearProgram()
    x = program.variables(2, name="x", upper=[3.0, 3.0])
    row = np.array([[1.0, 2.0]]) @ x
    program.constrain(row <= 4.0 if maximise else row >= 4.0, name="row")
    (program.maximise if maximise else program.minimise)(np.array([[1.0, 3.0]]) @ x)
    outcome = Engine(load_solver, name).solve_linear(program)
    assert outcome.certificate.ok and outcome.duals is not None
    assert outcome.value == pytest.approx(6.0 if maximise else 4.5, rel=1e-6)
    assert outcome.duals["row"][0] == pytest.approx(1.5)


@pytest.mark.parametrize("name", NAMES)
def test_limits_and_options_reach_the_library(name: str, libraries: None) -> None:
    program = LinearProgram()
    x = program.variables(3, name="x", upper=[2.0, 2.0, 2.0])
    program.constrain(sp.csr_matrix(np.ones((1, 3))) @ x <= 4.0, name="row")
    program.maximise(x.sum())
    solver = load_solver(name)()
    session = solver.open(program.arrays)
    assert session.run(Limits(work=1)).termination is Termination.WORK_LIMIT
    known = {"cupdlpx": "l_inf_ruiz_iterations", "cuopt": "pdlp_solver_mode"}[name]
    assert session.run(Limits(options={known: 1})).termination is Termination.OPTIMAL
    with pytest.raises(UsageError, match="has no option 'speed' that takes 1"):
        session.run(Limits(options={"speed": 1}))


@pytest.mark.parametrize("name", NAMES)
def test_an_infeasible_program_is_no_answer(name: str, libraries: None) -> None:
    program = LinearProgram()
    x = program.variables(1, name="x", upper=[1.0])
    program.constrain(np.array([[1.0]]) @ x >= 2.0, name="row")
    program.maximise(x.sum())
    values = load_solver(name)().open(program.arrays).run(Limits())
    assert values.termination is Termination.INFEASIBLE_OR_UNBOUNDED
    assert values.x is None and values.y is None


@pytest.mark.parametrize("left", [np.zeros(0), np.full(3, np.nan)])
@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_run_without_numbers_has_no_point(
    name: str, left: np.ndarray, libraries: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = LinearProgram()
    x = program.variables(3, name="x", upper=[2.0, 2.0, 2.0])
    program.constrain(sp.csr_matrix(np.ones((1, 3))) @ x <= 4.0, name="row")
    program.maximise(x.sum())
    solver = load_solver(name)
    run = gpu.GpuRun("TIME_LIMIT", left, left, 0)
    monkeypatch.setattr(solver, "minimised", lambda *_: run)
    values = solver().open(program.arrays).run(Limits())
    assert values.termination is Termination.TIME_LIMIT
    assert values.x is None and values.y is None and values.objective is None


@pytest.mark.parametrize(
    ("integer", "conic"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_auto_never_takes_them(integer: bool, conic: bool) -> None:
    for first in ("highs", "clarabel", "prices", "highs-ipm"):
        assert not set(NAMES) & set(others(first, integer=integer, conic=conic))
