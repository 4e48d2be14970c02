"""Linear and mixed-integer programs from MPS and LP files, read by HiGHS.

MPS: fixed and free format, OBJSENSE, ranges, all kinds of linear bounds, integer markers, the
objective's constant as the negative right-hand side of the objective row; free rows (N) are
dropped. LP: as HiGHS reads it (a row with two sides must be written as two rows). Both may be
compressed with gzip. Errors that HiGHS would repair silently are refused.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray
from optsched.display import Displayed
from optsched.errors import InvalidInput, SolverUnavailable
from optsched.formats.mps.names import SUFFIXES, ProgramNames
from optsched.formats.mps.scan import Scan
from optsched.instance.reading import read_bytes, show, unpacked
from optsched.libraries.recognised import GZIP, suffix_of
from optsched.program import Block, LinearArrays
from optsched.program.bounds import implied_bounds

log = logging.getLogger("optsched")

# Warnings of HiGHS that can be ignored: the program is still the one in the file, or the problem is
# reported elsewhere.
HARMLESS = (
    "switching to fixed format",
    "inconsistent bounds",
    "values summed",
    "repeated variable",
)


@dataclass(frozen=True, repr=False)
class ReadProgram(Displayed):
    """A program read from a file.

    Attributes
    ----------
    arrays : LinearArrays
        With one block of rows, ``rows``, and one of columns, ``columns``.
    names : ProgramNames
    name : str
        Of the program; of an LP file the name of the file.
    """

    arrays: LinearArrays
    names: ProgramNames
    name: str


def is_program(path: str | Path) -> bool:
    """Whether a path ends like a program: .mps or .lp, compressed or not."""
    return suffix_of(Path(path)) in SUFFIXES


def read_program(path: str | Path) -> ReadProgram:
    """Read a linear or mixed-integer program.

    Parameters
    ----------
    path : str or Path
        A file that ends in .mps or .lp, or in .mps.gz or .lp.gz.

    Raises
    ------
    InvalidInput
        With the file, the line if it is known, what was found and what was expected. Quadratic
        objectives, special ordered sets, semi-continuous columns and indicator rows are refused
        too.
    """
    path, file = Path(path), show_path(path)
    if not is_program(path):
        raise InvalidInput(
            file,
            show(path.suffix),
            f"a name that ends in {' or '.join(SUFFIXES)} (or these and .gz)",
        )
    kind = SUFFIXES[suffix_of(path)]
    data = read_bytes(path)
    if path.suffix.lower() == GZIP:
        data = unpacked(data, "a program", file)
    if not data.strip():
        raise InvalidInput(file, "an empty file", "a program")
    # HiGHS repairs errors silently, so the text is checked first
    scan = Scan.of(data.decode("utf-8", "surrogateescape"), file) if kind == "mps" else None
    model, words = _by_highs(data, kind, file, scan is None or not scan.fixed)
    try:
        arrays, names = _arrays(model, file)
    except UnicodeDecodeError:  # HiGHS returns names with the bytes of the file
        raise _no_utf8(data, file) from None
    if scan is not None:
        if arrays.A.nnz != scan.nonzeros:
            raise InvalidInput(
                file,
                f"{scan.nonzeros - arrays.A.nnz} coefficients that HiGHS leaves out ({words})",
                "coefficients above 1e-12 in absolute value",
            )
        _warn_of_defaults(scan, file)
    stem = path.name[: -len("".join(path.suffixes))] if path.suffixes else path.name
    return ReadProgram(arrays, names, (scan.name if scan is not None else "") or stem)


def _no_utf8(data: bytes, file: str) -> InvalidInput:
    """The error for the first text outside of comments that is not UTF-8."""
    for number, line in enumerate(data.splitlines(), 1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            if not line.lstrip().startswith((b"*", b"\\")) and not line.upper().startswith(b"NAME"):
                before = line[: error.start].decode().split(" ")[-1]
                found = f"a name with the byte 0x{line[error.start]:02x} after {show(before)}"
                return InvalidInput(f"{file}:{number}", found, "names in UTF-8")
    return InvalidInput(file, "names that are not UTF-8", "names in UTF-8")


def show_path(path: Path) -> str:
    """A path for messages."""
    text = str(path)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _by_highs(data: bytes, kind: str, file: str, free: bool) -> tuple[Any, str]:
    """The model read by HiGHS, and its warnings."""
    try:
        import highspy
    except ImportError as error:
        raise SolverUnavailable(
            f"reading a program needs highspy, which cannot be loaded ({error})"
        ) from None
    highs = highspy.Highs()
    with tempfile.TemporaryDirectory(prefix="optsched-") as folder:
        source = Path(folder) / f"program.{kind}"
        remarks = Path(folder) / "log"
        source.write_bytes(data)
        for option, value in (
            ("log_to_console", False),
            ("log_file", str(remarks)),
            ("small_matrix_value", 1e-12),
            ("mps_parser_type_free", free),
            ("large_matrix_value", 1e300),
        ):
            highs.setOptionValue(option, value)
        status = highs.readModel(str(source))
        output = remarks.read_text(errors="replace").splitlines() if remarks.exists() else []
        # Closes the log before its folder is removed
        highs.setOptionValue("log_file", "")
    lines = [
        line.replace(str(source), file).partition(":")[2].strip()
        for line in output
        if _remark(line)
    ]
    if status == highspy.HighsStatus.kError:
        words = f" ({lines[0]})" if lines and "Parser error" not in lines[0] else ""
        hint = (
            ""
            if kind == "mps"
            else "; ranges are two rows, every section has its heading, the last line is end"
        )
        raise InvalidInput(
            file,
            f"a text that HiGHS cannot read{words}",
            f"a linear program as {kind.upper()}{hint}",
        )
    harmful = [line for line in lines if not any(word in line for word in HARMLESS)]
    if harmful:
        raise InvalidInput(
            file,
            f"what HiGHS leaves out ({harmful[0]})",
            "a program that can be used unchanged",
        )
    for line in lines:
        log.info("%s: %s", file, line)
    return highs.getModel(), "; ".join(lines) or "no remark"


def _remark(line: str) -> bool:
    return line.startswith(("WARNING", "ERROR"))


def _arrays(model: Any, file: str) -> tuple[LinearArrays, ProgramNames]:
    lp = model.lp_
    rows = lp.num_row_
    columns = lp.num_col_
    if columns == 0:
        raise InvalidInput(file, "no column", "a program with columns")
    if model.hessian_.dim_:
        raise InvalidInput(file, "a quadratic objective", "a linear one")
    names = _names(lp, file)
    matrix = lp.a_matrix_
    A = sp.csc_matrix(
        (
            np.array(matrix.value_, np.float64),
            np.array(matrix.index_, np.int32),
            np.array(matrix.start_, np.int32),
        ),
        shape=(rows, columns),
    )
    # HiGHS keeps the order of the file within a column
    A.sort_indices()
    lower, upper, cost, row_lower, row_upper = (
        np.array(numbers, np.float64)
        for numbers in (lp.col_lower_, lp.col_upper_, lp.col_cost_, lp.row_lower_, lp.row_upper_)
    )
    _check_numbers(file, names, A, cost, lower, upper, row_lower, row_upper, float(lp.offset_))
    implied_lower, implied_upper = implied_bounds(A, row_lower, row_upper, lower, upper)
    arrays = LinearArrays(
        A,
        row_lower,
        row_upper,
        lower,
        upper,
        cost,
        _integer(lp, names, file),
        lp.sense_.name == "kMaximize",
        float(lp.offset_),
        implied_lower,
        implied_upper,
        (Block("rows", 0, rows),),
        (Block("columns", 0, columns),),
    )
    return arrays, names


def _names(lp: Any, file: str) -> ProgramNames:
    found = []
    for what, names, count in (
        ("column", lp.col_names_, lp.num_col_),
        ("row", lp.row_names_, lp.num_row_),
    ):
        unique = set(names)
        if len(names) != count or len(unique) != count:
            twice = next((name for name in unique if list(names).count(name) > 1), "")
            raise InvalidInput(
                file,
                f"two {what}s called {show(twice)}" if twice else f"{what}s without names",
                "names that differ",
            )
        found.append(tuple(names))
    return ProgramNames(*found)


def _integer(lp: Any, names: ProgramNames, file: str) -> BoolArray:
    if not len(lp.integrality_):
        return np.zeros(lp.num_col_, bool)
    kinds = [kind.name for kind in lp.integrality_]
    other = next(
        (place for place, kind in enumerate(kinds) if kind not in ("kContinuous", "kInteger")), None
    )
    if other is not None:
        raise InvalidInput(
            file,
            f"the semi-continuous column {show(names.columns[other])}",
            "continuous and integer columns",
        )
    return np.array([kind == "kInteger" for kind in kinds], bool)


def _check_numbers(
    file: str,
    names: ProgramNames,
    A: sp.csc_matrix,
    cost: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    row_lower: FloatArray,
    row_upper: FloatArray,
    offset: float,
) -> None:
    """No NaN, no infinite coefficient, no lower bound above its upper one."""
    if not np.isfinite(offset):
        raise InvalidInput(file, f"{offset} as constant of the objective", "a finite number")
    for what, numbers, owners in (("objective", cost, names.columns), ("matrix", A.data, None)):
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            column = (
                int(bad[0])
                if owners is not None
                else int(np.searchsorted(A.indptr, bad[0], "right")) - 1
            )
            raise InvalidInput(
                file,
                f"{numbers[bad[0]]} in the {what}, column {show(names.columns[column])}",
                "finite numbers",
            )
    for what, low, high, owners in (
        ("column", lower, upper, names.columns),
        ("row", row_lower, row_upper, names.rows),
    ):
        bad = np.flatnonzero(~(low <= high))
        if len(bad):
            place = int(bad[0])
            raise InvalidInput(
                file,
                f"{what} {show(owners[place])} with the bounds {low[place]:g} and {high[place]:g}",
                "lower bounds at or below upper ones (a column has the lower bound 0 unless "
                "one is given)",
            )


def _warn_of_defaults(scan: Scan, file: str) -> None:
    """Warn of integer columns without bounds, which readers treat differently: HiGHS and others
    take 0 or 1.
    """
    count = sum(integer and name not in scan.bounded for name, integer in scan.columns.items())
    if count:
        log.warning(
            "%s: %d integer columns without bounds are taken as 0 or 1, as HiGHS does", file, count
        )
