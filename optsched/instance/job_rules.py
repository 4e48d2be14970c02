"""Rules over single columns of the job table, for instances made from arrays and for replaced
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from optsched.arrays import AnyArray, BoolArray, constant, is_constant
from optsched.errors import InvalidInput
from optsched.instance.documents import LARGEST, SMALLEST, is_unicode
from optsched.instance.reading import show
from optsched.instance.tables import DTYPES, JobNames

AT_LEAST_0 = (
    "steps",
    "steps_done",
    "restart_cost",
    "isolated_time",
    "exempt_time",
    "checkpoint_interval",
)
ABOVE_0 = ("weight",)
AT_LEAST_1 = ("gpus_min", "gpus_max")
FINITE = (*AT_LEAST_0, *ABOVE_0, "arrival")
FINITE_OR_NONE = ("deadline",)


def array_name(field: str) -> str:
    """Name of the argument array, or key of a job document, for a field of the table."""
    return "gpus" if field in ("gpus_min", "gpus_max") else field


def as_array(name: str, value: Any) -> AnyArray:
    """Convert the argument to an array of any type."""
    try:
        return np.asarray(value)
    except ValueError:
        raise InvalidInput(name, "rows of different lengths", "an array") from None


def as_column(name: str, array: AnyArray, kind: str, count: int | None) -> AnyArray:
    """A new array of the kind's type and of shape (count,), or of any length if count is None.

    A single number stands for all rows and gives a read-only `constant`.
    """
    words = {"i": "whole numbers", "f": "numbers", "b": "true or false"}[kind]
    if array.dtype.kind not in {"i": "iu", "f": "iuf", "b": "b"}[kind] and array.size:
        raise InvalidInput(name, f"an array of {array.dtype}", words)
    if count is None and array.ndim != 1:
        raise InvalidInput(name, f"an array of shape {array.shape}", "one dimension")
    if count is not None and array.shape not in ((), (count,)):
        raise InvalidInput(
            name, f"an array of shape {array.shape}", f"one number or shape ({count},)"
        )
    if (
        kind == "i"
        and array.dtype.kind == "u"
        and array.size
        and array.max() > np.iinfo(np.int64).max
    ):
        raise InvalidInput(name, f"{array.max()}", f"{words} below 2^63")
    # A long double above the largest float becomes inf, refused later.
    with np.errstate(over="ignore"):
        # Copy, so that the caller's array is not shared.
        column: AnyArray = array.astype(DTYPES[kind])
    if kind == "f":
        column += 0.0  # turns -0.0 into 0.0
    if count is None or column.ndim == 1:
        return column
    return constant(column, count, DTYPES[kind])


def check_names(names: JobNames) -> None:
    """Refuse job ids that are empty, no text, or repeated."""
    if names.generated:
        return
    if names.given != len(names):
        raise InvalidInput("ids", f"{names.given} ids", f"one per job, {len(names)}")
    seen = set()
    for row in range(len(names)):
        name = names[row]
        if not isinstance(name, str) or not name or not (name.isascii() or is_unicode(name)):
            raise InvalidInput(f"ids[{row}]", show(name), "a non-empty text")
        if name in seen:
            raise InvalidInput(f"ids[{row}]", f"{show(name)} a second time", "ids that differ")
        seen.add(name)


def check_arrays(
    arrays: Mapping[str, AnyArray],
    limits: Mapping[str, int],
    names: JobNames,
    where: Callable[[int, str], str],
) -> None:
    """Check rules over single columns of the job table, for the given columns.

    Parameters
    ----------
    arrays : mapping
        Arrays of shape (jobs,) by names of `ARRAY_FIELDS`.
    limits : mapping
        Number of rows of the table that each index column refers to.
    names : JobNames
    where : function
        How a message names a job's field, given the row and the field.
    """

    def among(fields: Iterable[str]) -> list[str]:
        return [field for field in fields if field in arrays]

    def refuse(field: str, wrong: BoolArray, expected: str) -> None:
        rows = np.flatnonzero(wrong)
        if len(rows):
            row = int(rows[0])
            raise InvalidInput(
                where(row, field), f"{arrays[field][row]} (job {show(names[row])})", expected
            )

    # A constant column is checked once; if its value is wrong, the first wrong row is the first
    # row.
    arrays = {field: array[:1] if is_constant(array) else array for field, array in arrays.items()}
    # Check NaN first: comparisons with NaN are false, so later rules would accept it.
    for field in among(FINITE):
        refuse(field, ~np.isfinite(arrays[field]), "a finite number")
    for field in among(AT_LEAST_0):
        refuse(field, arrays[field] < 0, "a number of at least 0")
    for field in among(ABOVE_0):
        refuse(field, arrays[field] <= 0, "a number above 0")
        refuse(field, arrays[field] < SMALLEST, f"a number of at least {SMALLEST:g}")
    for field in among(FINITE):
        refuse(field, np.abs(arrays[field]) > LARGEST, f"a number of at most {LARGEST:g}")
    for field in among(FINITE_OR_NONE):
        too_large = np.isfinite(arrays[field]) & (np.abs(arrays[field]) > LARGEST)
        refuse(field, too_large, f"a number of at most {LARGEST:g}, or inf for none")
    for field in among(AT_LEAST_1):
        refuse(
            field,
            (arrays[field] < 1) | (arrays[field] > 2**31),
            "a whole number of GPUs, at least 1",
        )
    for field in among(FINITE_OR_NONE):
        refuse(
            field, np.isnan(arrays[field]) | np.isneginf(arrays[field]), "a number, or inf for none"
        )
    for field, limit in limits.items():
        refuse(
            field,
            (arrays[field] < -1) | (arrays[field] >= limit),
            f"a row below {limit}, or -1 for none",
        )
