"""Solvers under test: all that are registered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import troubled_solvers

from optsched.errors import SolverUnavailable
from optsched.registry import load_solver, names
from optsched.solvers.isolated import SolverProcess


@pytest.fixture(params=names("solver"))
def solver_name(request: pytest.FixtureRequest) -> str:
    try:
        load_solver(request.param).version()
    except SolverUnavailable as error:
        pytest.skip(str(error))
    return request.param


@pytest.fixture(scope="module")
def shared() -> Iterator[SolverProcess]:
    """A process for solvers that survives its tests, though its children do not."""
    with SolverProcess(troubled_solvers.load, grace=0.2) as process:
        process.load("troubled")
        process.start()
        yield process
