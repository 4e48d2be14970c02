"""Tables as arrays: the same cells and the same errors as cell by cell."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

# Private names: the readers and tables of one format, below its import
from optsched.formats.tables import Kind, read_table

KINDS: dict[str, Kind] = {"id": "text", "gpus": "whole", "time": "number", "more": "number"}
CELLS = st.sampled_from(
    ["1", " 2", "3.5", "", "x", "nan", "1e3", "1_0", "-4", "inf", '"5"', "1e999"]
)


def number(cell: str, kind: type) -> float | None:
    """What a cell says, read on its own; None if it is not a finite number."""
    cell = cell.strip().strip('"')
    try:
        return None if "_" in cell or not math.isfinite(kind(cell)) else float(kind(cell))
    except ValueError:
        return None


@given(st.lists(st.tuples(st.sampled_from("abc"), CELLS, CELLS, CELLS), min_size=1, max_size=6))
def test_the_same_as_cell_by_cell(rows: list[tuple[str, ...]]) -> None:
    """Or one of the wrong cells is refused."""
    data = ("id,gpus,time,more\n" + "".join(",".join(row) + "\n" for row in rows)).encode()
    expected = {
        column: [number(row[place], kind) for row in rows]
        for column, place, kind in (("gpus", 1, int), ("time", 2, float), ("more", 3, float))
    }
    wrong = {
        f"t.csv:{line}:{column}"
        for place, (column, values) in enumerate(expected.items(), 1)
        for line, (value, row) in enumerate(zip(values, rows, strict=True), 2)
        if value is None and (row[place].strip() or column != "more")
    }
    if wrong:
        with refuses("t.csv:...") as caught:
            read_table(data, "t.csv", KINDS, ["id", "gpus", "time"])
        assert caught.value.path in wrong
        return
    table = read_table(data, "t.csv", KINDS, ["id", "gpus", "time"])
    assert table.line.tolist() == list(range(2, len(rows) + 2))
    for column, values in expected.items():
        np.testing.assert_array_equal(table.numbers[column], np.array(values, float))


def test_long_tables_are_read_in_arrays() -> None:
    lines = "\n".join(f"j{row},{row % 8 + 1},{row * 0.5},{row}" for row in range(50_000))
    columns = read_table(f"id,gpus,time,more\n{lines}\n".encode(), "t.csv", KINDS, ["id"])
    assert len(columns) == 50_000
    assert columns.whole("gpus", 1, "GPUs").sum() == 225_000 and columns.names("id")[-1] == "j49999"


def test_what_a_column_may_say() -> None:
    columns = read_table(b"id,gpus,time\na,1,0\nb,0,1\n", "t.csv", KINDS, ["id"])
    with refuses('t.csv:3:gpus: found "0", expected at least one GPU'):
        columns.whole("gpus", 1, "at least one GPU")
    assert columns.flags("time").tolist() == [False, True] and columns.flags("more").tolist() == [
        False,
        False,
    ]
    with refuses("t.csv: found no line below the first"):
        read_table(b"id\n\n", "t.csv", KINDS, ["id"])
