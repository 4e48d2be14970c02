"""In the place of cuOpt's linear programs, as far as the back-end calls it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import scipy.sparse as sp
from minimum import minimum

STATUS = {
    "kOptimal": "Optimal", "kInfeasible": "PrimalInfeasible", "kIterationLimit": "IterationLimit",
    "kUnbounded": "DualInfeasible", "kUnboundedOrInfeasible": "UnboundedOrInfeasible",
}  # fmt: skip
PARAMETERS = ("method", "log_to_console", "time_limit", "iteration_limit", "pdlp_solver_mode")


class SolverMethod(IntEnum):
    Concurrent = 0
    PDLP = 1


class DataModel:
    def __init__(self) -> None:
        self.data: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("set_"):
            raise AttributeError(name)

        def keep(*values: Any) -> None:
            self.data[name.removeprefix("set_")] = values

        return keep


class SolverSettings:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def set_optimality_tolerance(self, eps_optimal: float) -> None:
        self.values["tolerance"] = eps_optimal

    def set_parameter(self, name: str, value: Any) -> None:
        if name not in PARAMETERS:
            raise ValueError("Invalid parameter. Please check documentation")
        self.values[name] = value


class Solution:
    def __init__(self, status: str, x: Any, y: Any, iterations: int) -> None:
        self.status, self.x, self.y, self.iterations = STATUS[status], x, y, iterations

    def get_termination_reason(self) -> str:
        return self.status

    def get_primal_solution(self) -> Any:
        return self.x

    def get_dual_solution(self) -> Any:
        return self.y

    def get_error_message(self) -> str:
        return ""

    def get_lp_stats(self) -> dict[str, Any]:
        return {"nb_iterations": self.iterations}


def Solve(data_model: DataModel, solver_settings: SolverSettings) -> Solution:
    data = data_model.data
    values, indices, offsets = data["csr_constraint_matrix"]
    (cost,) = data["objective_coefficients"]
    matrix = sp.csr_matrix((values, indices, offsets), shape=(len(offsets) - 1, len(cost)))
    rows = (data["constraint_lower_bounds"][0], data["constraint_upper_bounds"][0])
    columns = (data["variable_lower_bounds"][0], data["variable_upper_bounds"][0])
    limit = solver_settings.values.get("iteration_limit")
    assert solver_settings.values["method"] is SolverMethod.PDLP
    return Solution(*minimum(cost, matrix, rows, columns, limit))
