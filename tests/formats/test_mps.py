"""MPS and LP files: what is read back is the same program, with every reader at hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

from optsched import api
from optsched.errors import UsageError
from optsched.formats.mps import (
    ProgramNames,
    allocation_names,
    names_document,
    program_kind,
    program_names,
    program_text,
)
from optsched.program import AllocationProgram, LinearArrays, LinearProgram
from optsched.solvers import Highs, Limits

pytestmark = pytest.mark.filterwarnings("ignore:.*PULP_CBC_CMD:DeprecationWarning")

KINDS = ("mps", "lp")
Reader = Callable[[Path, LinearArrays], float]


def optimum(arrays: LinearArrays) -> float:
    values = Highs().open(arrays).run(Limits())
    assert values.termination == "optimal"
    assert values.objective is not None
    return values.objective


def by_highs(path: Path, arrays: LinearArrays) -> float:
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("mip_rel_gap", 0.0)
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    sense = highs.getObjectiveSense()[1]
    assert (sense == highspy.ObjSense.kMaximize) is arrays.maximise
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(highs.getInfo().objective_function_value)


def by_scip(path: Path, _: LinearArrays) -> float:
    from ortools.linear_solver.python import model_builder

    model = model_builder.Model()
    assert model.import_from_mps_file(str(path))
    solver = model_builder.Solver("scip")
    assert solver.solve(model) == model_builder.SolveStatus.OPTIMAL
    return float(solver.objective_value)


def by_pulp(path: Path, arrays: LinearArrays) -> float:
    """PuLP's own reader, which must be told of a maximum, and CBC."""
    import pulp

    _, problem = pulp.LpProblem.fromMPS(str(path), sense=-1 if arrays.maximise else 1)
    assert problem.solve(pulp.PULP_CBC_CMD(msg=False)) == 1
    return float(pulp.value(problem.objective))


def by_cbc(path: Path, _: LinearArrays) -> float:
    """CBC's own reader of LP files, as an independent program."""
    import subprocess

    import pulp

    command = [pulp.PULP_CBC_CMD().path, str(path), "-ratio", "0", "-solve", "-quit"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert "###" not in told, told  # a word that it does not understand
    found = re.findall(r"(?:Objective value:|Optimal - objective value)\s+(\S+)", told)
    return float(found[-1])


def program(
    instance: str, formulation: str, constraints: tuple[str, ...] = (), **options: Any
) -> AllocationProgram:
    candidates = api.compile(api.load(instance))
    made = api.make_formulation(formulation, options, constraints)
    return made.program(made.classes(candidates))


ALLOCATIONS = {
    "max-min": ("@quickstart", "max-min-fairness", {}),
    "max-min with classes": ("@large", "max-min-fairness", {}),
    "packing": ("@packing", "max-min-fairness", {}),
    "makespan": ("@quickstart", "makespan", {}),
    "integers": ("@quickstart", "max-throughput", {"integral": True}),
    "packing in integers": ("@packing", "max-throughput", {"integral": True}),
    "deadlines": ("@quickstart", "max-min-fairness", {"constraints": ("deadlines",)}),
}


def has_cbc() -> bool:
    import pulp

    return bool(pulp.PULP_CBC_CMD(msg=False).available())


def written(
    arrays: LinearArrays, folder: Path, kind: str, names: ProgramNames | None = None
) -> Path:
    path = folder / f"program.{kind}"
    path.write_bytes(
        program_text(
            arrays, names or program_names(arrays), kind, comments=["a comment", "größe\nline"]
        )
    )
    return path


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_formulations_read_back(name: str, tmp_path: Path) -> None:
    instance, formulation, options = ALLOCATIONS[name]
    made = program(instance, formulation, **options)
    arrays = made.to_linear().arrays
    expected = optimum(arrays)
    names = allocation_names(made, arrays)
    mps, lp = (written(arrays, tmp_path, kind, names) for kind in KINDS)
    readers: list[tuple[Reader, Path]] = [(by_highs, mps), (by_highs, lp), (by_scip, mps)]
    readers += [(by_pulp, mps), (by_cbc, lp)] if has_cbc() else []
    for reader, path in readers:
        tolerance = (
            5e-5 if reader in (by_pulp, by_cbc) else 1e-6
        )  # CBC's own tolerance is absolute, 1e-7 per row
        assert reader(path, arrays) == pytest.approx(expected, rel=tolerance), reader.__name__


def odd_program(maximise: bool = True, integer: bool = True) -> LinearProgram:
    """Everything at once: free, fixed, boxed, negative, integer columns; <=, >=, =, range and free rows; a constant."""
    lp = LinearProgram()
    inf = np.inf
    x = lp.variables(
        5, name="x", lower=[-inf, 0, 0, 2, -inf], upper=[inf, 4, 10, 2, -1], implied=(-99, 99),
        integer=[False, False, integer, False, False],
    )  # fmt: skip
    y = lp.variables(1, name="free one", lower=-inf, implied=(-99, 99))
    matrix = np.array(
        [[1, 1, 0, 0, 0], [1, -1, 1, 0, 0], [0, 1, 1, 1, 0], [1, 0, 0, 0, 1 / 3], [1, 1, 1, 1, 1.0]]
    )
    lower, upper = [3, -5, 1, -inf, -inf], [3, 7, inf, 9, inf]
    lp.constrain((matrix @ x).between(lower, upper), name="odd rows")
    lp.constrain((x.sum() + y.sum()).between(-3.0, 0.5), name="range")
    lp.constrain(np.array([[0, 0, 2, 0, 0]]) @ x - 1.0 <= 2.3, name="constant")
    cost = np.array([[1, 2, 10 / 3, 1, 1.0]])
    objective = (cost @ x) + (0.1 * y).sum() + 12.345678901234567
    (lp.maximise if maximise else lp.minimise)(objective if maximise else objective * -1.0)
    return lp


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_odd_rows_columns_and_constants(
    kind: str, maximise: bool, integer: bool, tmp_path: Path
) -> None:
    arrays = odd_program(maximise, integer).arrays
    expected = optimum(arrays)
    path = written(arrays, tmp_path, kind)
    assert by_highs(path, arrays) == pytest.approx(expected, rel=1e-12)
    if kind == "mps":
        assert by_scip(path, arrays) == pytest.approx(expected, rel=1e-9)
    assert optimum(odd_program(True, False).arrays) > optimum(
        odd_program(True, True).arrays
    )  # integers matter


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_read_back(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    rows, columns = int(random.integers(1, 8)), int(random.integers(1, 10))
    lp = LinearProgram()
    lower = random.choice([0.0, -2.5, 1.0], columns)
    upper = lower + random.choice([0.0, 0.5, 3.0, 100.0], columns)
    x = lp.variables(
        columns, name="x", lower=lower, upper=upper, integer=random.random(columns) < 0.4
    )
    matrix = np.round(
        random.standard_normal((rows, columns)) * (random.random((rows, columns)) < 0.7), 3
    )
    inside = matrix @ np.clip(np.ceil(lower), lower, upper)
    low = np.where(random.random(rows) < 0.4, inside - random.random(rows), -np.inf)
    high = np.where(random.random(rows) < 0.8, inside + random.random(rows), np.inf)
    lp.constrain((matrix @ x).between(low, high), name="rows")
    objective = (random.standard_normal((1, columns)) @ x) + float(random.standard_normal())
    (lp.maximise if seed % 2 else lp.minimise)(objective)
    arrays = lp.arrays
    values = Highs().open(arrays).run(Limits())
    if values.termination != "optimal":
        pytest.skip("this draw has no feasible point")
    for kind in KINDS:
        found = by_highs(written(arrays, tmp_path, kind), arrays)
        assert found == pytest.approx(values.objective, rel=1e-9, abs=1e-9)


def test_columns_keep_their_order_and_values_their_digits(tmp_path: Path) -> None:
    import highspy

    made = program("@packing", "max-min-fairness")
    arrays = made.to_linear().arrays
    names = allocation_names(made, arrays)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(str(written(arrays, tmp_path, "mps", names)))
    lp = highs.getLp()
    assert tuple(lp.col_names_) == names.columns
    assert tuple(lp.row_names_) == names.rows
    matrix = sp.csc_matrix(
        (
            np.array(lp.a_matrix_.value_),
            np.array(lp.a_matrix_.index_),
            np.array(lp.a_matrix_.start_),
        ),
        arrays.shape,
    )
    assert abs(matrix - arrays.A).max() <= 1e-14 * abs(arrays.A).max()
    np.testing.assert_allclose(lp.col_cost_, arrays.cost, rtol=1e-14)


# --- names ---------------------------------------------------------------------------------------------------------


def named(columns: list[tuple[str, int]], rows: list[tuple[str, int]]) -> LinearArrays:
    lp = LinearProgram()
    blocks = [lp.variables(count, name=name, upper=1.0) for name, count in columns]
    for name, count in rows:
        lp.constrain(np.ones((count, blocks[0].rows)) @ blocks[0] <= 1.0, name=name)
    total = blocks[0].sum()
    for block in blocks[1:]:
        total = total + block.sum() * 0.001  # every column stands somewhere
    lp.maximise(total)
    return lp.arrays


def test_names_of_blocks() -> None:
    arrays = named(
        [("x", 3), ("t", 1), ("max", 1), ("a b/ü", 2), ("7up", 2), ("e12", 1), ("info", 1)],
        [("r", 2), ("s", 1)],
    )
    names = program_names(arrays)
    assert names.columns == (
        "x_0",
        "x_1",
        "x_2",
        "t",
        "max_0",
        "a_b_0",
        "a_b_1",
        "b_7up_0",
        "b_7up_1",
        "b_e12",
        "b_info",
    )
    assert names.rows == ("r_0", "r_1", "s_0")


def test_words_instead_of_numbers_where_they_make_names() -> None:
    arrays = named([("x", 2)], [("capacity", 3), ("other", 2)])
    words = {"capacity": ["v100", "k 80", "p-100.cpu"], "other": ["a b", "a/b"]}
    names = program_names(arrays, words)
    assert names.rows == (
        "capacity_v100",
        "capacity_k_80",
        "capacity_p_100_cpu",
        "other_0",
        "other_1",
    )
    assert program_names(arrays, {"capacity": ["a", "", "b"]}).rows[:3] == (
        "capacity_0",
        "capacity_1",
        "capacity_2",
    )


def test_names_that_would_be_equal_are_told_apart() -> None:
    arrays = named([("a b", 2), ("a/b", 2), ("a b_1", 1)], [("r", 1)])
    names = program_names(arrays).columns
    assert len(set(names)) == 5
    assert names[:2] == ("a_b_0", "a_b_1")


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_survive_every_reader(kind: str, tmp_path: Path) -> None:
    arrays = named(
        [("end", 1), ("st", 2), ("\x1b[31m", 1), ("x" * 200, 1), ("inf", 1), ("nan_x", 2)],
        [("free", 1), ("gen", 2)],
    )
    path = written(arrays, tmp_path, kind)
    assert by_highs(path, arrays) == pytest.approx(1.007)
    if kind == "lp" and has_cbc():
        assert by_cbc(path, arrays) == pytest.approx(1.007)


def test_every_name_is_described() -> None:
    made = program("@packing", "max-min-fairness")
    arrays = made.to_linear().arrays
    names = allocation_names(made, arrays)
    told = names_document(made, arrays, names)
    assert tuple(told["columns"]) == names.columns
    assert tuple(told["rows"]) == names.rows
    C = made.classes
    for number in (0, 40, C.columns - 1):
        column = told["columns"][f"x_{number}"]
        assert column["job"] == C.instance.jobs_table.names[int(C.first[C.class_a[number]])]
        assert ("partner" in column) == bool(C.class_b[number] >= 0)
        assert column["pool"] == C.instance.cluster.pools[int(C.pool[number])].name
    assert told["rows"]["capacity_p100"] == {
        "block": "capacity",
        "number": 1,
        "resource": "p100",
        "capacity": 4.0,
    }
    assert told["rows"]["levels_0"]["jobs"] == int(C.count[0])


# --- the text ------------------------------------------------------------------------------------------------------


def test_head_of_the_files() -> None:
    arrays = named([("x", 1)], [("r", 1)])
    names = program_names(arrays)
    comments = ["first", "ü\nsecond", ""]
    mps = program_text(arrays, names, "mps", name="my program", comments=comments).decode("ascii")
    assert mps.startswith("* first\n* \\xfc second\n*\nNAME        my_program\n")
    assert "OBJSENSE\n  MAX\n" in mps
    lp = program_text(arrays, names, "lp", comments=comments).decode("ascii")
    assert lp.startswith("\\ first\n\\ \\xfc second\n\\\n")
    assert "\nmax\n" in lp


def test_minimum_says_so() -> None:
    arrays = odd_program(maximise=False).arrays
    assert b"OBJSENSE" not in program_text(
        arrays, program_names(arrays), "mps"
    ) or b"MIN" in program_text(arrays, program_names(arrays), "mps")
    assert b"\nmin\n" in program_text(arrays, program_names(arrays), "lp")


def test_sections_of_lp_files_have_their_full_headings() -> None:
    made = program("@packing", "max-throughput", integral=True)
    arrays = made.to_linear().arrays
    lines = program_text(arrays, allocation_names(made, arrays), "lp").decode().splitlines()
    headings = {line for line in lines if line and not line.startswith((" ", "\\"))}
    assert headings == {"max", "st", "bounds", "binaries", "generals", "end"}


def test_kind_by_suffix() -> None:
    assert program_kind(Path("a/b.MPS")) == "mps"
    assert program_kind(Path("b.lp")) == "lp"
    with refuses("found b.txt, expected a name that ends in .mps or .lp for a program", UsageError):
        program_kind(Path("b.txt"))


def test_a_program_with_a_nan_is_refused() -> None:
    from dataclasses import replace

    from optsched.errors import SolverCrashed

    arrays = named([("x", 1)], [("r", 1)])
    with pytest.raises(SolverCrashed, match="HiGHS refused the program"):
        program_text(replace(arrays, cost=np.array([np.nan])), program_names(arrays), "mps")
