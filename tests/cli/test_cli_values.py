"""Values as they are typed: durations, key=value, side constraints, pools; numbers as they are shown."""

from __future__ import annotations

import math
from typing import Any

import pytest
from refusals import refuses

# Private names: parts of a command are checked without a command line
from optsched.cli import tables, values
from optsched.errors import InvalidArgument, UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5", 1.5),
        (".5m", 30),
        ("5m", 300),
        ("5 min", 300),
        ("2h", 7200),
        ("1d", 86400),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    assert values.duration(text, "--time-limit") == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "1e3", "inf", "nan", "2x", "1h30m", "1,5", "٣", "9" * 400]
)
def test_no_duration(text: str) -> None:
    with refuses(
        f"--at: found {text!r}, expected seconds or a duration such as 90s, 5m, 2h or 1d",
        InvalidArgument,
    ):
        values.duration(text, "--at")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True), ("false", False), ("null", None), ("3", 3), ("-2.5", -2.5), ("1e3", 1000.0), ('"3"', "3"),
        ("[1, 2]", [1, 2]), ('{"a": 1}', {"a": 1}), ("literal", "literal"), ("True", "True"), ("", ""),
        ("NaN", "NaN"), ("Infinity", "Infinity"), ("1e999", "1e999"), ("{broken", "{broken"), ("[a, b]", ["a", "b"]),
        ("[v100]", ["v100"]), ("[1,x]", [1, "x"]), ("[]", []), ("[a, [b]]", "[a, [b]]"), ('[a, "b"]', '[a, "b"]'),
    ],
)  # fmt: skip
def test_value(text: str, expected: Any) -> None:
    found = values.value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_pairs() -> None:
    assert values.pairs(["a=1", "b-c=x=y", " d = true "], "-O") == {"a": 1, "b_c": "x=y", "d": True}
    for wrong in ("a", "=1", ""):
        with refuses(f"-O: found {wrong!r}, expected key=value", InvalidArgument):
            values.pairs([wrong], "-O")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deadlines", {"kind": "deadlines"}),
        ("deadlines:", {"kind": "deadlines"}),
        ("deadlines:soft=true", {"kind": "deadlines", "soft": True}),
        ("budget:limit=12.5,per=hour", {"kind": "budget", "limit": 12.5, "per": "hour"}),
        (
            'budget:limit=1,pools=["a","b"],note=x, y',
            {"kind": "budget", "limit": 1, "pools": ["a", "b"], "note": "x, y"},
        ),
        ('{"kind": "budget", "limit": 2}', {"kind": "budget", "limit": 2}),
        (
            'pinned:jobs=["a","b,c=d"],pools=["v100"]',
            {"kind": "pinned", "jobs": ["a", "b,c=d"], "pools": ["v100"]},
        ),
        (
            'pinned:jobs=["a\\",x=1"],pools=v100',
            {"kind": "pinned", "jobs": ['a",x=1'], "pools": "v100"},
        ),
        (
            "pinned:jobs=[a,b],pools=[v100]",
            {"kind": "pinned", "jobs": ["a", "b"], "pools": ["v100"]},
        ),
        ('x:a={"b": [1, 2]},c=3', {"kind": "x", "a": {"b": [1, 2]}, "c": 3}),
        ('x:a=5",b=2', {"kind": "x", "a": '5"', "b": 2}),
    ],
)
def test_constraint(text: str, expected: dict[str, Any]) -> None:
    assert values.constraint(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":a=1", "a=1", "budget:12", "budget:a=1,a=2", '{"kind": "budget", "a": 1, "a": 2}']
)
def test_no_constraint(text: str) -> None:
    with pytest.raises(UsageError):
        values.constraint(text)


def test_pool_sizes() -> None:
    assert values.pool_sizes("v100:8, p:100:16", "--pools") == {"v100": 8, "p:100": 16}
    for wrong in ("", "v100", ":3", "v100:", "v100:-1", "v100:1.5"):
        with refuses(f"--pools: found {wrong!r}", UsageError):
            values.pool_sizes(wrong, "--pools")
    with refuses("--pools: found a twice, expected each one once", UsageError):
        values.pool_sizes("a:1,a:2", "--pools")


def test_numbers() -> None:
    assert values.whole(" -12 ", "--seed") == -12
    assert values.real("1e-9", "--gap") == 1e-9
    for wrong in ("1.5", "x", "", "1_000", "٣"):
        with refuses(f"--seed: found {wrong!r}, expected a whole number", InvalidArgument):
            values.whole(wrong, "--seed")
    for wrong in ("x", "", "nan", "inf", "1e999"):
        with refuses(f"--gap: found {wrong!r}, expected a number", InvalidArgument):
            values.real(wrong, "--gap")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0 %"), (1e-7, "< 0.1 %"), (0.0004, "< 0.1 %"), (0.001, "0.1 %"), (0.375, "37.5 %"), (0.9999, "> 99.9 %"),
     (1.0, "100 %"), (1 - 1e-12, "100 %")],
)  # fmt: skip
def test_percent(fraction: float, text: str) -> None:
    assert tables.percent(fraction) == text


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (0.0, "0 %"),
        (1e-15, "0 %"),
        (2e-8, "2e-06 %"),
        (0.0123, "1.2 %"),
        (86.0, "8,600 %"),
        (5.4e10, "over 10,000 %"),
    ],
)
def test_share(gap: float, text: str) -> None:
    assert tables.share(gap) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0004, "0.4 ms"), (0.012, "12 ms"), (0.9999, "1 s"), (31.4, "31.4 s"), (600, "10 min"), (31344, "8.71 h"),
     (295956, "3.43 d"), (1e9, "1.16e+04 d")],
)  # fmt: skip
def test_seconds(value: float, text: str) -> None:
    assert tables.seconds(value) == text


def test_names_are_cut_in_the_middle() -> None:
    assert tables.name("a" * 32) == "a" * 32
    cut = tables.name("first" + "x" * 40 + "last")
    assert len(cut) == tables.LONGEST_NAME
    assert cut.startswith("first")
    assert cut.endswith("last")
    assert "..." in cut


def test_listed() -> None:
    assert tables.listed(["a", "b"]) == "a, b"
    assert tables.listed(list("abcdefg"), most=3) == "a, b, c and 4 more"
    assert tables.number(1234567.0) == "1.23457e+06"
    assert not math.isnan(float(tables.rounded(0.123456)))
