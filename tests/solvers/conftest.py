"""Solvers under test: all that are registered."""

from __future__ import annotations

import pytest

from optsched.errors import SolverUnavailable
from optsched.registry import load_solver, names


@pytest.fixture(params=names("solver"))
def solver_name(request: pytest.FixtureRequest) -> str:
    try:
        load_solver(request.param).version()
    except SolverUnavailable as error:
        pytest.skip(str(error))
    return request.param
