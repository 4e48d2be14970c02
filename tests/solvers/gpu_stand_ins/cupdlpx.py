"""In the place of cuPDLPx: its class `Model`, as far as the back-end calls it."""

from __future__ import annotations

from typing import Any

import numpy as np
from minimum import minimum

STATUS = {
    "kOptimal": "OPTIMAL", "kInfeasible": "PRIMAL_INFEASIBLE", "kIterationLimit": "ITERATION_LIMIT",
    "kUnbounded": "DUAL_INFEASIBLE", "kUnboundedOrInfeasible": "PRIMAL_INFEASIBLE",
}  # fmt: skip


class Model:
    def __init__(
        self, objective_vector: Any, constraint_matrix: Any, constraint_lower_bound: Any,
        constraint_upper_bound: Any, variable_lower_bound: Any = None, variable_upper_bound: Any = None,
    ) -> None:  # fmt: skip
        size = constraint_matrix.shape[1]
        low = np.full(size, -np.inf) if variable_lower_bound is None else variable_lower_bound
        high = np.full(size, np.inf) if variable_upper_bound is None else variable_upper_bound
        self._data = (
            objective_vector,
            constraint_matrix,
            (constraint_lower_bound, constraint_upper_bound),
            (low, high),
        )
        self._params: dict[str, Any] = {
            "verbose": False, "eps_optimal_relative": 1e-4, "eps_feasible_relative": 1e-4,
            "time_sec_limit": 3600.0, "iteration_limit": 2**31 - 1, "l_inf_ruiz_iterations": 10,
        }  # fmt: skip
        self.Status = self.StatusName = self.X = self.Pi = self.IterCount = None

    def setParam(self, name: str, value: Any) -> None:
        if name not in self._params:
            raise KeyError(f"Unknown parameter '{name}'")
        if isinstance(value, float) and not np.isfinite(value):
            raise ValueError(f"Parameter '{name}' must be finite.")
        if isinstance(value, str):
            raise TypeError(f"Parameter '{name}' must be a number.")
        self._params[name] = value

    def setParams(self, /, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            self.setParam(name, value)

    def optimize(self) -> None:
        status, self.X, self.Pi, self.IterCount = minimum(
            *self._data, self._params["iteration_limit"]
        )
        self.X.flags.writeable = self.Pi.flags.writeable = False
        self.Status, self.StatusName = list(STATUS).index(status), STATUS[status]
