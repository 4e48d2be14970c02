"""Long tables as arrays: what is read, and every message."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from optsched.errors import InvalidInput
from optsched.formats.csv_columns import Kind, indexed, read_columns

COLUMNS: dict[str, Kind] = {"name": "text", "at": "time", "value": "number", "count": "whole"}


def read(text: str | bytes, required: tuple[str, ...] = ("name", "value")):
    return read_columns(text if isinstance(text, bytes) else text.encode(), "t.csv", COLUMNS, required)


def test_columns() -> None:
    table = read("name,other,value,count,at\n a ,?,1.5,2,1970-01-01 00:01:00\n\nb,,-3e2,,\n")
    assert (len(table), table.line.tolist()) == (2, [2, 4])
    assert table.texts == {"name": ["a", "b"]}
    assert table.numbers["value"].tolist() == [1.5, -300.0]
    assert table.numbers["count"][0] == 2 and np.isnan(table.numbers["count"][1])
    assert table.numbers["at"][0] == 60 and np.isnan(table.numbers["at"][1])
    assert table.place(1, "value") == "t.csv:4:value"


@pytest.mark.parametrize("text", ["name;value\r\na;1\r\n", "\ufeffname\tvalue\na\t1\n", 'name,"value"\n"a",1'])
def test_dialects(text: str) -> None:
    assert read(text).numbers["value"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv: found an empty file, expected a first line with the columns, such as name,value"),
        ("name\na\n", "t.csv:1: found no column value, expected one, beside name"),
        ("name,value,name\n", "t.csv:1: found the column name a second time, expected each column once"),
        ("name,value\na,1\nb\n", "t.csv:3: found 1 cells, expected 2, as in the first line"),
        ("name,value\na,1\n,2\n", "t.csv:3:name: found nothing, expected a text"),
        ("name,value\na,1\nb,\n", "t.csv:3:value: found nothing, expected a number"),
        ("name,value\na,1\nb,x\n", 't.csv:3:value: found "x", expected a number'),
        ("name,value\na,1\nb,nan\n", 't.csv:3:value: found "nan", expected a number'),
        ("name,value\na,1\nb,inf\n", 't.csv:3:value: found "inf", expected a number'),
        ("name,value\na,1_0\n", 't.csv:2:value: found "1_0", expected a number'),
        ("name,value,count\na,1,1.5\n", 't.csv:2:count: found "1.5", expected a whole number'),
        ("name,value,at\na,1,2017-10-09\n", 't.csv:2:at: found "2017-10-09", expected a time such as'),
        ("name,value,at\na,1,2017-13-09 00:00:00\n", 'found "2017-13-09 00:00:00", expected a time such as'),
        (b"name,value\na,1\n\xff,2\n", "t.csv:3: found the byte 0xff, expected text in UTF-8"),
        ('name,value\n"a,1\n', "text that is not CSV"),
    ],
)
def test_messages(text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        read(text)


def test_refusing_a_value() -> None:
    table = read("name,value\na,1\n\nb,-2\n")
    table.refuse(table.numbers["value"] < -5, "value", "at least -5")
    with pytest.raises(InvalidInput, match=re.escape("t.csv:4:value: found -2.0, expected at least 0")):
        table.refuse(table.numbers["value"] < 0, "value", "at least 0")


def test_distinct_texts() -> None:
    names, place = indexed(["b", "a", "b"])
    assert (names, place.tolist()) == (("b", "a"), [0, 1, 0])


def test_two_hundred_thousand_lines_take_a_moment() -> None:
    text = "name,at,value,count\n" + "job,2017-10-09 07:01:55,66.5,1\n" * 200_000
    began = time.perf_counter()
    assert len(read(text)) == 200_000
    assert time.perf_counter() - began < 4
