"""Tables that fit any width: no word and no number is broken, nothing is left out."""

from __future__ import annotations

import io
import random
import re
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

# Private names: parts of a command are checked without a command line
from optsched.cli.tables import Grid

WIDTHS = (60, 80, 120, 200)
WORDS = (
    "gpt-2-small-6",
    "a",
    "of",
    "workers=9,",
    "throughput",
    "max-min-fairness",
    "tenant",
    "4",
    "v100",
)
HEADS = ("job", "min share", "makespan", "steps/s", "deadlines", "pool", "solved in", "objective")


def drawn(grid: Grid, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(grid)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def grid_of(columns: list[str], rows: list[list[str]], left: int) -> Grid:
    return Grid(columns, [[Text(cell) for cell in row] for row in rows], left)


def blocks(text: str) -> list[tuple[list[str], list[str]]]:
    """Heads and lines of each block."""
    parts = re.split(r"\n\s*\n", text.strip("\n"))
    found = []
    for part in parts:
        lines = part.splitlines()
        rule = next(number for number, line in enumerate(lines) if set(line.strip()) == {"─"})
        found.append((lines[:rule], lines[rule + 1 :]))
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", range(12))
def test_words_and_numbers_stay_whole(seed: int, width: int) -> None:
    dice = random.Random(seed)
    count, left = dice.randrange(2, 16), dice.randrange(1, 3)
    columns = [dice.choice(HEADS) for _ in range(count)]
    number = [
        lambda: f"{dice.random() * 10 ** dice.randrange(9):,.3f} s",
        lambda: "",
        lambda: f"{dice.randrange(99)} %",
    ]
    rows = [
        [" ".join(dice.choices(WORDS, k=dice.randrange(1, 6))) for _ in range(left)]
        + [dice.choice(number)() for _ in range(count - left)]
        for _ in range(4)
    ]
    text = drawn(grid_of(columns, rows, left), width)
    assert max(map(len, text.splitlines())) <= width
    shown = blocks(text)
    assert sum(" ".join(heads).split().count("makespan") for heads, _ in shown) >= columns.count(
        "makespan"
    )
    words = " ".join(line for _, lines in shown for line in lines)
    for row in rows:
        assert all(f" {word} " in f" {words} " for cell in row[:left] for word in cell.split())
        assert all(f" {cell} " in f" {words} " for cell in row[left:] if cell)


def test_a_table_that_fits_is_one_block() -> None:
    grid = grid_of(["job", "GPUs"], [["a b", "1"], ["c", "12"]], 1)
    assert drawn(grid, 60).splitlines() == [
        "",
        "job   GPUs",
        "──────────",
        "a b      1",
        "c       12",
    ]


def test_columns_that_do_not_fit_go_on_below_under_the_first() -> None:
    grid = grid_of(
        ["job", *(f"figure {n}" for n in range(9))], [["resnet", *["123,456.7 s"] * 9]], 1
    )
    shown = blocks(drawn(grid, 60))
    assert len(shown) == 3
    assert all(lines[0].split()[0] == "resnet" for _, lines in shown)
    heads = " ".join(word for found, _ in shown for line in found for word in line.split())
    assert [f"figure {n}" in heads for n in range(9)] == [True] * 9


def test_only_a_word_that_leaves_no_room_is_broken_after_punctuation() -> None:
    label = "water-filling:entity_policy=fairness,perturbation=0.001"
    text = drawn(grid_of(["formulation", "objective"], [[label, "1,234"]], 1), 60)
    pieces = [line.split()[0] for _, lines in blocks(text) for line in lines]
    assert "".join(pieces) == label
    assert all(piece[-1] in ",:=-_" for piece in pieces[:-1])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_comparison_at_every_width(run: Any, width: int) -> None:
    names = ["max-min-fairness", "makespan", "max-throughput"]
    out = run(
        "compare", "@quickstart", *(part for name in names for part in ("-f", name)), columns=width
    ).out
    assert max(map(len, out.splitlines())) <= width
    shown = blocks(out.partition("\n\n")[2].partition("\n- ")[0])
    for heads, lines in shown:
        assert heads[-1].split()[0] == "formulation"
        assert [line.split()[0] for line in lines] == names
    assert (len(shown) == 1) == (width == 200)
    assert any("makespan" in line.split() for heads, _ in shown for line in heads)
