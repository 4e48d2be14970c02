"""What both libraries are made of here: HiGHS, whose answer is a little off as that of a first-order method is."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

OFF = 1e-8
"""Relative error of points."""


def minimum(
    cost: Any, matrix: Any, rows: tuple[Any, Any], columns: tuple[Any, Any], iterations: int | None
) -> tuple[str, Any, Any, int]:
    """Status of HiGHS, point and multipliers of min cost @ x over rows and columns within their bounds."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("presolve", "off")
    if iterations is not None:
        highs.setOptionValue("simplex_iteration_limit", iterations)
    count, size = matrix.shape
    highs.passModel(
        size, count, matrix.nnz, int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMinimize), 0.0,
        cost, *columns, *rows, matrix.indptr, matrix.indices, matrix.data, np.zeros(size, np.int32),
    )  # fmt: skip
    highs.run()
    solution = highs.getSolution()
    x, y = np.array(solution.col_value), np.array(solution.row_dual)
    status = highs.getModelStatus().name
    return status, x * (1 + OFF), y, int(highs.getInfo().simplex_iteration_count)
