"""Points as ``.sol`` files: ours come back to the last bit, those of other solvers are read, the rest is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from optsched.formats import read_sol, sol_text

NAMES = ("x", "y", "z")

FILES = {
    "MIPLIB": "=obj= 7.5\nx 1\nz -2.5e-1\n",
    "HiGHS": (
        "Model status\nOptimal\n\n# Primal solution values\nFeasible\nObjective 7.5\n# Columns 3\nx 1\ny 0\nz -0.25\n"
        "# Rows 1\nx 9\n\n# Dual solution values\nFeasible\n# Columns 3\nx 5\n"
    ),
    "SCIP": (
        "solution status: optimal solution found\nobjective value:                                  7.5\n"
        "x                                                  1 \t(obj:2)\n"
        "z                                              -0.25 \t(obj:1)\n"
    ),
    "Gurobi": "# Solution for model m\n# Objective value = 7.5\nx 1\ny 0\nz -0.25\n",
    "CBC": (
        "Optimal - objective value 7.50000000\n      0 x                         1                       2\n"
        "      2 z                     -0.25                       1\n"
    ),
    "CBC at its limit": "Stopped on time - objective value 7.5\n** 0 x 1 2\n   2 z -0.25 1\n",
    "other line ends": "=obj= 7.5\r\nx 1\r\nz -0.25\r\n",
}


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write(text: str | bytes) -> Path:
        path = tmp_path / "p.sol"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.mark.parametrize("kind", FILES)
def test_files_of_other_solvers(kind: str, write) -> None:  # type: ignore[no-untyped-def]
    assert read_sol(write(FILES[kind]), NAMES).tolist() == [1.0, 0.0, -0.25]


def test_files_that_highs_writes_are_read(tmp_path: Path) -> None:
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    x = highs.addVariable(lb=0, ub=4, obj=-1.0, name="x")
    y = highs.addVariable(lb=0, ub=3, obj=-1.0, name="y")
    highs.addConstr(x + y <= 5.5)
    highs.run()
    highs.writeSolution(str(tmp_path / "h.sol"), 0)
    assert sorted(read_sol(tmp_path / "h.sol", ("x", "y")).tolist()) in ([1.5, 4.0], [2.5, 3.0])


def test_names_of_any_kind(write) -> None:  # type: ignore[no-untyped-def]
    assert read_sol(write("A ONE 2\n7 3\nobjective 4\n"), ("A ONE", "7", "objective")).tolist() == [
        2,
        3,
        4,
    ]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_every_number_comes_back(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float]
) -> None:
    x = np.array(numbers) + 0.0
    path = tmp_path_factory.mktemp("sol") / "p.sol"
    path.write_bytes(sol_text(1.0, NAMES, x))
    assert read_sol(path, NAMES).tobytes() == x.tobytes()


def test_text() -> None:
    assert (
        sol_text(7.5, NAMES, np.array([1.0, -0.0, 1 / 3]))
        == b"=obj= 7.5\nx 1\ny 0\nz 0.3333333333333333\n"
    )


REFUSED = {
    "an unknown name": (
        "x 1\nw 2\n",
        'p.sol:2: found column "w", expected a column of the program',
    ),
    "a name twice": ("x 1\ny 0\nx 1\n", 'p.sol:3: found column "x" a second time'),
    "no number": ("x one\n", 'p.sol:1: found "one", expected a finite number'),
    "an infinite number": (
        "x 1\ny +infinity\n",
        'p.sol:2: found "+infinity", expected a finite number',
    ),
    "NaN": ("x nan\n", 'p.sol:1: found "nan"'),
    "a name alone": ("x\n", 'p.sol:1: found "x", expected the name of a column and its value'),
    "an objective that is none": ("=obj= good\n", 'p.sol:1: found "good"'),
    "a heading in the middle": ("x 1\nobjective value: 3\n", 'p.sol:2: found column "objective"'),
    "CBC, an unknown name": (
        "Optimal - objective value 1\n 0 w 1 0\n",
        'p.sol:2: found column "w"',
    ),
    "XML": ("<?xml version='1.0'?>\n<CPLEXSolution>", "p.sol: found XML, as CPLEX writes it"),
    "nothing": ("\n# comment\n", "p.sol: found no value"),
    "another program": ("hello world\n", 'p.sol:1: found column "hello"'),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str, write) -> None:  # type: ignore[no-untyped-def]
    text, message = REFUSED[what]
    with refuses(message):
        read_sol(write(text), NAMES)


def test_missing_files(tmp_path: Path) -> None:
    with refuses("found no readable file..."):
        read_sol(tmp_path / "none.sol", NAMES)
    with refuses("found no readable file..."):
        read_sol(tmp_path, NAMES)
