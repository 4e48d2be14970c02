"""Solvers under test: all that are registered, or those of ``--solvers``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from optsched.errors import SolverUnavailable
from optsched.registry import load_solver, names

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=names("solver"))
def solver_name(request: pytest.FixtureRequest) -> str:
    try:
        load_solver(request.param).version()
    except SolverUnavailable as error:
        pytest.skip(str(error))
    return request.param
