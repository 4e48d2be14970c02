"""Export of linear programs as MPS and LP files,
with names that lead back to jobs, pools and requirements.

HiGHS writes the files, with 15 digits per number. What readers take differently is avoided where
the format allows it: integer columns carry an upper bound, sections of LP files their full heading,
and names are plain ASCII. A maximum is ``OBJSENSE MAX`` in an MPS file: HiGHS, SCIP, Gurobi and
CPLEX read that, CBC does not and needs the option ``-max``. LP files have no such trap.
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
# A row without a term, which HiGHS writes and does not read.
EMPTY_ROW = re.compile(rb"^( \S+:)( (?:<=|>=|=) )", re.MULTILINE)
COLUMNS = re.compile(rb"^COLUMNS\n.*?^RHS\n", re.MULTILINE | re.DOTALL)
# From here on HiGHS takes a bound for none.
HIGHS_INFINITY = 1e20
# How far a bound may be off a whole number and still count as it.
WHOLE = 1e-6
SECTION = re.compile(rb"^(bin|gen|semi)\n((?: .*\n)?)", re.MULTILINE)
LONG_HEADING = {b"bin": b"binaries\n", b"gen": b"generals\n", b"semi": b"semi-continuous\n"}
INTEGER_BOUND = re.compile(rb"^ (U|L)I BOUND", re.MULTILINE)
# Every reader knows UP and LO; UI and LI, which say the same of an integer column, PuLP does not.
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
        Of the program; kept in MPS files.
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
    headings in full, a term for rows and columns that have none.
    """
    body = SECTION.sub(_section, body)
    bare = "".join(f"+0 {names.columns[column]} " for column in _without_entries(arrays))
    body = body.replace(b" obj: ", f" obj: {bare}".encode("ascii"), 1)
    if arrays.shape[1]:
        body = EMPTY_ROW.sub(rb"\1 +0 %b\2" % names.columns[0].encode("ascii"), body)
    return body


def _plain_mps(body: bytes, arrays: LinearArrays, names: ProgramNames) -> bytes:
    """An MPS file that other readers take:
    plain types of bounds, and markers around integer columns alone.
    """
    body = INTEGER_BOUND.sub(lambda match: PLAIN_BOUND[match[1]], body)
    if arrays.is_integer and (np.diff(arrays.A.indptr) == 0).any():
        return COLUMNS.sub(lambda match: _marked(match[0], arrays, names), body, count=1)
    return body


def _marked(section: bytes, arrays: LinearArrays, names: ProgramNames) -> bytes:
    """The section COLUMNS with new markers:
    HiGHS neither opens nor closes them at columns without coefficients.
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
    """Columns in no row and not in the objective."""
    return np.flatnonzero((np.diff(arrays.A.indptr) == 0) & (arrays.cost == 0)).tolist()


def _section(match: re.Match[bytes]) -> bytes:
    """The heading of a section in full, as CBC wants it; an empty section goes."""
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
    """Column bounds; of integer columns whole numbers,
    and the implied upper bound where there is none.

    Readers differ in what they assume of an integer column without an upper bound, and HiGHS 1.13.1
    takes feasible programs with a bound such as 0.5 for infeasible.
    """
    # Below its lower bound: the rows cannot be met
    implied = np.maximum(arrays.implied_upper, arrays.lower)
    needs_bound = np.isposinf(arrays.upper) & (np.abs(implied) < HIGHS_INFINITY)
    upper = np.where(arrays.integer & needs_bound, implied, arrays.upper)
    # Bounds of integer columns become whole, which changes no feasible point
    whole = np.ceil(arrays.lower - WHOLE), np.floor(upper + WHOLE)
    # No whole number between 0.2 and 0.8: that is for solvers to say
    rounded = arrays.integer & (whole[0] <= whole[1])
    return np.where(rounded, whole[0], arrays.lower), np.where(rounded, whole[1], upper)
