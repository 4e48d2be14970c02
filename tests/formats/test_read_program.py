"""Reading MPS and LP files: what was written comes back; what is broken is named with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from optsched.errors import InvalidInput
from optsched.formats.mps import program_names, program_text, read_program
from optsched.program import LinearArrays, LinearProgram

INF = np.inf
MPS = """NAME foo bar
* a comment

ROWS
 N obj
 N other
 L r1
 G r2
 E r3
 E r4
COLUMNS
 x obj 1 r1 1
 x r2 1 other 3
 M1 'MARKER' 'INTORG'
 y obj 2 r1 3.141592653589793
 y r3 1
 M2 'MARKER' 'INTEND'
 z r4 -1e-3
RHS
 rhs r1 4 r2 1
 rhs r3 2 obj -7
RANGES
 rng r1 2.5 r2 4
 rng r3 -1 r4 3
BOUNDS
 UP bnd y 9
 MI bnd z
 UP bnd z -1
ENDATA
"""


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write(text: str | bytes, name: str = "m.mps") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_everything_of_an_mps_file(write) -> None:  # type: ignore[no-untyped-def]
    found = read_program(write(MPS))
    arrays = found.arrays
    assert found.name == "foo bar"
    assert found.names.columns == ("x", "y", "z")
    assert found.names.rows == ("r1", "r2", "r3", "r4")
    assert not arrays.maximise and arrays.offset == 7.0
    assert arrays.cost.tolist() == [1, 2, 0]
    assert arrays.integer.tolist() == [False, True, False]
    assert arrays.lower.tolist() == [0, 0, -INF] and arrays.upper.tolist() == [INF, 9, -1]
    assert arrays.row_lower.tolist() == [1.5, 1, 1, 0] and arrays.row_upper.tolist() == [4, 5, 2, 3]
    assert arrays.A.toarray().tolist() == [
        [1, 3.141592653589793, 0],
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, -1e-3],
    ]
    assert np.isfinite(arrays.implied_upper).all()  # of x from r1 and r2


@pytest.mark.parametrize(
    "word", ["OBJSENSE\n    MAX\n", "OBJSENSE MAX\n", "OBJSENSE\n    MAXIMIZE\n"]
)
def test_sense(word: str, write) -> None:  # type: ignore[no-untyped-def]
    assert read_program(write(MPS.replace("ROWS\n", word + "ROWS\n", 1))).arrays.maximise


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_compressed_and_with_other_line_ends(ending: str, write) -> None:  # type: ignore[no-untyped-def]
    text = MPS.replace("\n", ending).encode()
    plain, packed = read_program(write(text)), read_program(write(gzip.compress(text), "m.MPS.gz"))
    assert packed.names == plain.names
    same(packed.arrays, plain.arrays)


def fixed(kind: str = "", *fields: str) -> str:
    one, two, three, four, five = (*fields, "", "", "", "", "")[:5]
    return f" {kind:<2} {one:<8}  {two:<8}  {three:>12}   {four:<8}  {five:>12}".rstrip() + "\n"


FIXED = (
    "NAME          TEST\nROWS\n" + fixed("N", "COST") + fixed("L", "LIM 1") + fixed("G", "LIM 2") + "COLUMNS\n"
    + fixed("", "X ONE", "COST", "1.0", "LIM 1", "1.0") + fixed("", "X ONE", "LIM 2", "1.0")
    + fixed("", "Y TWO", "COST", "2.0", "LIM 1", "1.0") + "RHS\n" + fixed("", "RHS", "LIM 1", "4.0", "LIM 2", "1.0")
    + "BOUNDS\n" + fixed("UP", "BND", "X ONE", "4.0") + "ENDATA\n"
)  # fmt: skip


def test_names_with_spaces_are_the_fixed_format(write) -> None:  # type: ignore[no-untyped-def]
    found = read_program(write(FIXED))
    assert found.names.columns == ("X ONE", "Y TWO") and found.names.rows == ("LIM 1", "LIM 2")
    assert found.arrays.A.toarray().tolist() == [[1, 1], [1, 0]]
    assert found.arrays.upper.tolist() == [4, INF]


def test_spaces_in_the_names_of_columns_alone(write) -> None:  # type: ignore[no-untyped-def]
    found = read_program(write(FIXED.replace("LIM ", "LIM_")))
    assert found.names.columns == ("X ONE", "Y TWO") and found.names.rows == ("LIM_1", "LIM_2")


LP = """\\ comment
max
 obj: 3 x + 2 y + 5
subject to
 c1: x + y <= 4
 c2: x + x - y >= -2
bounds
 x <= 3
 y free
general
 x
end
"""


def test_lp_file(write) -> None:  # type: ignore[no-untyped-def]
    found = read_program(write(LP, "plan.lp"))
    arrays = found.arrays
    assert (
        found.name == "plan"
        and found.names.columns == ("x", "y")
        and found.names.rows == ("c1", "c2")
    )
    assert arrays.maximise and arrays.offset == 5 and arrays.cost.tolist() == [3, 2]
    assert arrays.A.toarray().tolist() == [[1, 1], [2, -1]]
    assert arrays.lower.tolist() == [0, -INF] and arrays.integer.tolist() == [True, False]


# --- there and back ------------------------------------------------------------------------------------------------


def rounded(numbers: np.ndarray) -> np.ndarray:
    """Numbers as 15 digits have them."""
    return np.array([float(f"{number:.15g}") for number in numbers.ravel().tolist()])


def same(one: LinearArrays, other: LinearArrays, round_to_text: bool = False) -> None:
    as_read = rounded if round_to_text else np.asarray
    assert one.maximise == other.maximise and one.shape == other.shape
    assert (
        one.A.indptr.tolist() == other.A.indptr.tolist()
        and one.A.indices.tolist() == other.A.indices.tolist()
    )
    assert one.A.data.tobytes() == as_read(other.A.data).tobytes()
    for name in ("cost", "lower", "upper", "row_lower", "row_upper"):
        found, wanted = getattr(one, name) + 0.0, as_read(getattr(other, name)) + 0.0
        assert found.tobytes() == wanted.tobytes(), name
    assert one.offset == float(f"{other.offset:.15g}")
    assert one.integer.tolist() == other.integer.tolist()


NUMBER = st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-9)


@st.composite
def programs(draw: st.DrawFn) -> LinearProgram:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))

    def vector(count: int, numbers: st.SearchStrategy[float] = NUMBER) -> np.ndarray:
        return np.array(draw(st.lists(numbers, min_size=count, max_size=count)))

    lp = LinearProgram()
    one, other = vector(columns), vector(columns)
    lower = np.where(vector(columns) < 0, -INF, np.minimum(one, other))
    upper = np.where(vector(columns) < 0, INF, np.maximum(one, other))
    integer = np.array(draw(st.lists(st.booleans(), min_size=columns, max_size=columns)))
    lower, upper = (
        np.where(integer, np.floor(lower), lower),
        np.where(integer, np.floor(upper), upper),
    )
    x = lp.variables(columns, name="x", lower=lower, upper=upper, integer=integer)
    matrix = np.array([vector(columns) for _ in range(rows)])
    one, other = vector(rows), vector(rows)
    low, high = np.minimum(one, other), np.maximum(one, other)
    kind = np.array(draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)))
    low, high = (
        np.where(kind == 0, -INF, low),
        np.where(kind == 1, INF, np.where(kind == 2, low, high)),
    )
    low = np.where(
        kind == 3, np.floor(low), low
    )  # a range: RANGES holds the difference, so let it be exact
    high = np.where(kind == 3, low + 1024.0, high)
    lp.constrain((matrix @ x).between(low, high), name="r")
    objective = vector(columns)[np.newaxis, :] @ x + float(draw(NUMBER))
    (lp.maximise if draw(st.booleans()) else lp.minimise)(objective)
    return lp


@settings(max_examples=60, deadline=None)
@given(programs())
def test_what_is_written_comes_back_to_the_15th_digit(
    tmp_path_factory: pytest.TempPathFactory, lp: LinearProgram
) -> None:
    arrays = lp.arrays
    names = program_names(arrays)
    path = tmp_path_factory.mktemp("there") / "m.mps"
    path.write_bytes(program_text(arrays, names, "mps", name="there"))
    back = read_program(path)
    assert back.names == names and back.name == "there"
    rounded_bounds = program_rounding(arrays)
    same(back.arrays, rounded_bounds, round_to_text=True)


def program_rounding(arrays: LinearArrays) -> LinearArrays:
    """Of an integer column without upper bound the implied one is written; see `optsched.formats.mps.write`."""
    from dataclasses import replace

    implied = np.maximum(arrays.implied_upper, arrays.lower)
    told = arrays.integer & np.isposinf(arrays.upper) & (np.abs(implied) < 1e20)
    upper = np.where(told, np.floor(implied + 1e-6), arrays.upper)
    return replace(arrays, upper=np.where(upper >= 1e20, INF, upper))  # HiGHS's word for no bound


# --- what is refused -----------------------------------------------------------------------------------------------

BROKEN = {
    "a number with a letter": (" y r3 1\n", " y r3 1O0\n", 'm.mps:16: found "1O0", expected a finite number'),
    "a word for a number": ("x obj 1 r1 1", "x obj abc r1 1", 'm.mps:12: found "abc", expected a finite number'),
    "a Fortran exponent": ("x obj 1 r1 1", "x obj 1D5 r1 1", 'm.mps:12: found "1D5", expected a finite number'),
    "NaN": ("x obj 1 r1 1", "x obj nan r1 1", 'm.mps:12: found "nan", expected a finite number'),
    "an infinite coefficient": ("x obj 1 r1 1", "x obj 1 r1 1e400", 'm.mps:12: found "1e400", expected a finite...'),
    "a side that is NaN": ("rhs r1 4", "rhs r1 nan", 'm.mps:20: found "nan", expected a number'),
    "an unknown row": ("x obj 1 r1 1", "x obj 1 r9 1", 'm.mps:12: found row "r9", expected a row of the section...'),
    "an unknown row on the right": ("rhs r3 2", "rhs r9 2", 'm.mps:21: found row "r9"'),
    "an unknown row in ranges": ("rng r3 -1", "rng r9 -1", 'm.mps:24: found row "r9"'),
    "a bound of an unknown column": ("UP bnd y 9", "UP bnd q 9", 'm.mps:26: found column "q", expected a column...'),
    "an unknown type of bound": ("UP bnd y 9", "XX bnd y 9", 'm.mps:26: found a bound of type "XX"'),
    "a semi-continuous bound": ("UP bnd y 9", "SC bnd y 9", 'm.mps:26: found a bound of type "SC"'),
    "a bound without its number": ("UP bnd y 9", "UP y", 'm.mps:26: found "UP y", expected a type, a set...'),
    "an unknown type of row": (" G r2", " g r2", 'm.mps:8: found "g r2", expected a type (N, L, G, E)...'),
    "a row twice": (" G r2", " G r1", 'm.mps:8: found a second row "r1"'),
    "a column in two places": (" z r4", " x r4 1\n z r4", 'm.mps:18: found column "x" a second time'),
    "an entry twice": ("x r2 1 other 3", "x r1 1", 'm.mps: found what HiGHS leaves out (Column "x" has duplicate...'),
    "a bound twice": ("UP bnd y 9", "UP bnd y 9\n UP bnd y 8", "m.mps: found what HiGHS leaves out..."),
    "two sets of sides": ("rhs r3 2", "rhs2 r3 2", 'm.mps:21: found the set "rhs2" after "rhs", expected one set...'),
    "a wrong marker": ("'INTORG'", "'INTORK'", "m.mps:14: found \"M1 'MARKER' 'INTORK'\", expected a marker..."),
    "an entry without number": (" y r3 1\n", " y r3\n", 'm.mps:16: found "y r3", expected a column, then...'),
    "no end": ("ENDATA\n", "", "m.mps: found the end of the file, expected ENDATA..."),
    "a quadratic objective": ("ENDATA", "QUADOBJ\n x x 2\nENDATA", 'm.mps:29: found "QUADOBJ", expected a section...'),
    "special ordered sets": ("ENDATA", "SOS1\nENDATA", 'm.mps:29: found "SOS1", expected a section...'),
    "sides before rows": ("NAME foo bar", "NAME foo\nRHS", "m.mps:2: found RHS, expected the section ROWS before it"),
    "an entry before the first section": ("NAME foo bar", " x r1 1", 'm.mps:1: found "x r1 1", expected the head...'),
    "an unknown sense": ("ROWS\n", "OBJSENSE\n UP\nROWS\n", 'm.mps:5: found "UP", expected MAX or MIN'),
    "bounds that cross": (" UP bnd y 9", " LO bnd y 10\n UP bnd y 9",
        'm.mps: found column "y" with the bounds 10 and 9'),
    "a negative upper bound alone": (" MI bnd z\n", "", 'm.mps: found column "z" with the bounds 0 and -1'),
    "a tiny coefficient": ("z r4 -1e-3", "z r4 -1e-13", "m.mps: found what HiGHS leaves out (LP matrix..."),
    "no columns": (MPS[MPS.index(" x obj") : MPS.index("ENDATA")], "", "m.mps: found no column"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_broken_mps_files(what: str, write) -> None:  # type: ignore[no-untyped-def]
    old, new, message = BROKEN[what]
    assert old in MPS
    with refuses(message):
        read_program(write(MPS.replace(old, new, 1)))


BROKEN_LP = {
    "no program": ("Hello world\n", "p.lp: found no column"),
    "no end": (
        LP.replace("end\n", ""),
        "p.lp: found a text that HiGHS cannot read, expected a linear program as LP; ranges are two "
        "rows, every section has its heading, the last line is end",
    ),
    "two relations": (LP.replace("<= 4", "<= <= 4"), "p.lp: found a text that HiGHS cannot read"),
    "a range": (
        LP.replace("c1: x", "c1: -2 <= x"),
        "p.lp: found a text that HiGHS cannot read, expected a linear program as LP; ranges are two rows...",
    ),
    "squares": (LP.replace("+ 5", "+ [ x^2 ]/2"), "p.lp: found a quadratic objective"),
    "NaN": (LP.replace("3 x", "nan x"), 'p.lp: found nan in the objective, column "x"'),
    "infinity": (LP.replace("3 x", "1e400 x"), 'p.lp: found inf in the objective, column "x"'),
    "a name twice": (LP.replace("c2", "c1"), 'p.lp: found two rows called "c1"'),
    "semi-continuous": (
        LP.replace("general", "semi"),
        'p.lp: found the semi-continuous column "x"',
    ),
    "binary data": (bytes(range(256)), "p.lp: found a text that HiGHS cannot read"),
}


@pytest.mark.parametrize("what", BROKEN_LP)
def test_broken_lp_files(what: str, write) -> None:  # type: ignore[no-untyped-def]
    text, message = BROKEN_LP[what]
    with refuses(message):
        read_program(write(text, "p.lp"))


def test_files_that_are_none(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "folder.mps").mkdir()
    for path, message in (
        (write(""), "m.mps: found an empty file"),
        (write(b" \n\n", "e.lp"), "e.lp: found an empty file"),
        (write("not gzip", "x.mps.gz"), "x.mps.gz: found data that gzip cannot read..."),
        (
            write(gzip.compress(MPS.encode())[:-20], "y.mps.gz"),
            "y.mps.gz: found data that gzip cannot read...",
        ),
        (write(bytes(range(256)), "b.mps"), "b.mps:1"),
        (tmp_path / "missing.mps", "found no readable file at missing.mps (No such file..."),
        (tmp_path / "folder.mps", "found no readable file at folder.mps (Is a directory..."),
        (write(MPS, "m.txt"), 'm.txt: found ".txt", expected a name that ends in .mps or .lp...'),
    ):
        with refuses(message):
            read_program(path)


def test_a_compressed_file_that_unpacks_to_too_much(write, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("optsched.instance.reading.MOST_UNPACKED", len(MPS))
    assert read_program(write(gzip.compress(MPS.encode()), "fits.mps.gz")).name == "foo bar"
    with pytest.raises(InvalidInput) as caught:
        read_program(write(gzip.compress(MPS.encode() + b"\n"), "large.mps.gz"))
    assert caught.value.path.endswith("large.mps.gz")
    assert f"more than {len(MPS)} bytes" in caught.value.found


def test_integers_without_bounds_are_told(write, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    found = read_program(write(MPS.replace(" UP bnd y 9\n", "")))
    assert found.arrays.upper[1] == 1.0
    assert "1 integer columns without bounds are taken as 0 or 1" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("m.mps", MPS.replace("r1", "r\xe4"), 7),
        ("m.mps", MPS.replace(" y ", " y\xff "), 15),
        ("m.lp", "minimize\n obj: x\xe4\nsubject to\n c: x\xe4 >= 1\nend\n", 2),
    ],
)
def test_names_that_are_not_utf8_are_named_with_their_line(
    write, name: str, text: str, line: int
) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput) as told:
        read_program(write(text.encode("latin-1"), name))
    assert told.value.path.endswith(f"{name}:{line}")
    assert told.value.expected == "names in UTF-8"


def test_comments_and_the_title_may_be_in_any_encoding(write) -> None:  # type: ignore[no-untyped-def]
    text = MPS.replace("foo bar", "f\xfcr").replace("a comment", "gr\xfc\xdfe")
    assert read_program(write(text.encode("latin-1"))).names.columns == ("x", "y", "z")
