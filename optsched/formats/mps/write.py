"""Export of linear programs as MPS and LP files,
with names that lead back to jobs, pools and requirements.

HiGHS writes the files, with 15 digits per number. Constructs that readers interpret differently are
avoided where possible: integer columns have an upper bound, sections of LP files have full
headings, and names are plain ASCII. A maximum is ``OBJSENSE MAX`` in an MPS file, which HiGHS,
SCIP, Gurobi and CPLEX read; CBC does not, and needs the option ``-max``. LP files do not have this
problem.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed, SolverUnavailable
from optsched.formats.mps.names import FORBIDDEN, ProgramNames
from optsched.program import LinearArrays

COMMENT = {"mps": "*", "lp": "\\"}
# A row without terms, which HiGHS can write but not read.
EMPTY_ROW = re.compile(rb"^( \S+:)( (?:<=|>=|=) )", re.MULTILINE)
COLUMNS = re.compile(rb"^COLUMNS\n.*?^RHS\n", re.MULTILINE | re.DOTALL)
# HiGHS treats bounds from this size on as infinite.
HIGHS_INFINITY = 1e20
# Tolerance for a bound to count as an integer.
WHOLE = 1e-6
SECTION = re.compile(rb"^(bin|gen|semi)\n((?: .*\n)?)", re.MULTILINE)
LONG_HEADING = {b"bin": b"binaries\n", b"gen": b"generals\n", b"semi": b"semi-continuous\n"}
INTEGER_BOUND = re.compile(rb"^ (U|L)I BOUND", re.MULTILINE)
# UP and LO are known to all readers; PuLP does not know UI and LI, which mean the same for integer
# columns.
PLAIN_BOUND = {b"U": b" UP BOUND", b"L": b" LO BOUND"}


def program_text(
    arrays: LinearArrays,
    names: ProgramNames,
    kind: str,
    *,
    name: str = "program",
    comments: Sequence[str] = (),
) -> bytes:
    """A linear or mixed-integer program as the content of an MPS or LP file.

    Parameters
    ----------
    arrays : LinearArrays
    names : ProgramNames
    kind : {"mps", "lp"}
        In an LP file a row with two different sides is written twice, as ``NAMElo`` and ``NAMEup``.
    name : str
        Name of the program; written to MPS files only.
    comments : sequence of str
        Lines at the head of the file.

    Returns
    -------
    bytes
        ASCII text. Minimum or maximum and the objective's constant are part of it.
    """
    highs = _load(arrays, names, FORBIDDEN.sub("_", name) or "program")
    with tempfile.TemporaryDirectory(prefix="optsched-") as folder:
        path = Path(folder) / f"program.{kind}"
        highs.writeModel(str(path))
        if not path.is_file():
            raise SolverCrashed(f"HiGHS could not write the program as {kind}")
        body = path.read_bytes()
    body = _plain_lp(body, arrays, names) if kind == "lp" else _plain_mps(body, arrays, names)
    head = "".join(f"{COMMENT[kind]} {_ascii(line)}".rstrip() + "\n" for line in comments)
    return head.encode("ascii") + body


def _plain_lp(body: bytes, arrays: LinearArrays, names: ProgramNames) -> bytes:
    """An LP file that other readers take:
    full headings, and a term for rows and columns without terms.
    """
    body = SECTION.sub(_section, body)
    bare = "".join(f"+0 {names.columns[column]} " for column in _without_entries(arrays))
    body = body.replace(b" obj: ", f" obj: {bare}".encode("ascii"), 1)
    if arrays.shape[1]:
        body = EMPTY_ROW.sub(rb"\1 +0 %b\2" % names.columns[0].encode("ascii"), body)
    return body


def _plain_mps(body: bytes, arrays: LinearArrays, names: ProgramNames) -> bytes:
    """An MPS file that other readers take:
    plain types of bounds, and markers around exactly the integer columns.
    """
    body = INTEGER_BOUND.sub(lambda match: PLAIN_BOUND[match[1]], body)
    if arrays.is_integer and (np.diff(arrays.A.indptr) == 0).any():
        return COLUMNS.sub(lambda match: _marked(match[0], arrays, names), body, count=1)
    return body


def _marked(section: bytes, arrays: LinearArrays, names: ProgramNames) -> bytes:
    """The section COLUMNS with new markers:
    HiGHS neither opens nor closes markers at columns without coefficients.
    """
    integer = {
        name for name, marked in zip(names.columns, arrays.integer.tolist(), strict=True) if marked
    }
    lines = []
    inside = False
    markers = 0
    for line in section.splitlines(keepends=True):
        if b"'MARKER'" in line:
            continue
        entry = line.startswith(b" ")
        if inside != (entry and line.split()[0].decode("ascii") in integer):
            inside = not inside
            lines.append(
                b"    MARK%04d  'MARKER'                 'INT%b'\n"
                % (markers, b"ORG" if inside else b"END")
            )
            markers += 1
        lines.append(line)
    return b"".join(lines)


def _without_entries(arrays: LinearArrays) -> list[int]:
    """Columns without coefficients in rows and objective."""
    return np.flatnonzero((np.diff(arrays.A.indptr) == 0) & (arrays.cost == 0)).tolist()


def _section(match: re.Match[bytes]) -> bytes:
    """The full heading of a section, which CBC needs; an empty section is removed."""
    return LONG_HEADING[match[1]] + match[2] if match[2] else b""


def _ascii(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "backslashreplace").decode("ascii")


def _load(arrays: LinearArrays, names: ProgramNames, name: str) -> Any:
    try:
        import highspy
    except ImportError as error:
        raise SolverUnavailable(
            f"exporting a program needs highspy, which cannot be loaded ({error})"
        ) from None
    lp = highspy.HighsLp()
    lp.model_name_ = name
    lp.num_row_, lp.num_col_ = arrays.shape
    lp.sense_ = highspy.ObjSense.kMaximize if arrays.maximise else highspy.ObjSense.kMinimize
    lp.offset_ = arrays.offset
    lp.col_cost_, (lp.col_lower_, lp.col_upper_) = arrays.cost, _bounds(arrays)
    lp.row_lower_, lp.row_upper_ = arrays.row_lower, arrays.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = arrays.shape
    lp.a_matrix_.start_ = arrays.A.indptr.astype(np.int32)
    lp.a_matrix_.index_ = arrays.A.indices.astype(np.int32)
    lp.a_matrix_.value_ = arrays.A.data
    if arrays.is_integer:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(integer)] for integer in arrays.integer]
    lp.col_names_, lp.row_names_ = list(names.columns), list(names.rows)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    numbers = np.isfinite(arrays.cost).all() and np.isfinite(arrays.A.data).all()
    if not numbers or highs.passModel(lp) == highspy.HighsStatus.kError:
        raise SolverCrashed(
            "HiGHS refused the program (an infinite or missing coefficient, "
            "or a lower bound above its upper bound)"
        )
    return highs


def _bounds(arrays: LinearArrays) -> tuple[FloatArray, FloatArray]:
    """Column bounds.

    Bounds of integer columns are rounded to integers, and a missing upper bound is replaced by the
    implied one. The reasons: readers make different assumptions about integer columns without an
    upper bound, and HiGHS 1.13.1 reports feasible programs with a bound such as 0.5 as infeasible.
    """
    # An implied upper bound below the lower bound: the rows are infeasible
    implied = np.maximum(arrays.implied_upper, arrays.lower)
    needs_bound = np.isposinf(arrays.upper) & (np.abs(implied) < HIGHS_INFINITY)
    upper = np.where(arrays.integer & needs_bound, implied, arrays.upper)
    # Rounding bounds of integer columns inwards does not change the feasible points
    whole = np.ceil(arrays.lower - WHOLE), np.floor(upper + WHOLE)
    # If there is no integer between the bounds (0.2 and 0.8), keep them: solvers will report it
    rounded = arrays.integer & (whole[0] <= whole[1])
    return np.where(rounded, whole[0], arrays.lower), np.where(rounded, whole[1], upper)
