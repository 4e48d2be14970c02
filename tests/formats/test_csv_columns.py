"""Long tables as arrays: the same cells and the same errors as tables row by row."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from optsched.errors import InvalidInput
from optsched.formats.csv_columns import read_columns
from optsched.formats.csv_text import Kind, read_table

KINDS: dict[str, Kind] = {"id": "text", "gpus": "whole", "time": "number", "more": "number"}
CELLS = st.sampled_from(
    ["1", " 2", "3.5", "", "x", "nan", "1e3", "1_0", "-4", "inf", '"5"', "1e999"]
)


@given(st.lists(st.tuples(st.sampled_from("abc"), CELLS, CELLS, CELLS), min_size=1, max_size=6))
def test_the_same_as_row_by_row(rows: list[tuple[str, ...]]) -> None:
    """Or refused with the same words; which of several wrong cells is told first may differ."""
    data = ("id,gpus,time,more\n" + "".join(",".join(row) + "\n" for row in rows)).encode()
    try:
        table = read_table(data, "t.csv", KINDS, ["id", "gpus", "time"])
    except InvalidInput:
        with refuses("t.csv:...") as caught:
            read_columns(data, "t.csv", KINDS, ["id", "gpus", "time"])
        assert re.fullmatch(r"t\.csv:\d+:(gpus|time|more)", caught.value.path)
        return
    columns = read_columns(data, "t.csv", KINDS, ["id", "gpus", "time"])
    assert columns.line.tolist() == [row.line for row in table.rows]
    for column in ("gpus", "time", "more"):
        told = [float(row.cells.get(column, np.nan)) for row in table.rows]
        np.testing.assert_array_equal(columns.numbers[column], told)


def test_long_tables_are_read_in_arrays() -> None:
    lines = "\n".join(f"j{row},{row % 8 + 1},{row * 0.5},{row}" for row in range(50_000))
    columns = read_columns(f"id,gpus,time,more\n{lines}\n".encode(), "t.csv", KINDS, ["id"])
    assert len(columns) == 50_000
    assert columns.whole("gpus", 1, "GPUs").sum() == 225_000 and columns.names("id")[-1] == "j49999"


def test_what_a_column_may_say() -> None:
    columns = read_columns(b"id,gpus,time\na,1,0\nb,0,1\n", "t.csv", KINDS, ["id"])
    with refuses('t.csv:3:gpus: found "0", expected at least one GPU'):
        columns.whole("gpus", 1, "at least one GPU")
    assert columns.flags("time").tolist() == [False, True] and columns.flags("more").tolist() == [
        False,
        False,
    ]
    with refuses("t.csv: found no line below the first"):
        read_columns(b"id\n\n", "t.csv", KINDS, ["id"])
