"""The page of formulations is that of their docstrings and options, and its pictures are there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pydantic import Field

from optsched.cli.formulations import described
from optsched.formulation import FormulationOptions
from optsched.registry import load_formulation

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))

from formulation_gallery.docstrings import Docstring, Piece, markdown, parse  # noqa: E402
from formulation_gallery.figures import show_constraint  # noqa: E402
from formulation_gallery.page import PAGE, PICTURES, Entry, catalogue, constraint_text, page  # noqa: E402
from mathematics import inline, rendered  # noqa: E402

pytestmark = pytest.mark.documentation

LARGEST = 60_000
"""Bytes of a picture."""


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return catalogue()


def test_the_page_is_up_to_date(entries: list[Entry]) -> None:
    assert (DOCS / PAGE).read_text() == page(entries), (
        "run: cd docs && python -m formulation_gallery"
    )


def test_the_pictures_are_there_and_small(entries: list[Entry]) -> None:
    wanted = {Path(entry.picture).name for entry in entries if entry.picture is not None}
    sizes = {path.name: path.stat().st_size for path in (DOCS / PICTURES).iterdir()}
    assert set(sizes) == wanted
    assert [name for name, size in sizes.items() if not 500 < size < LARGEST] == []


def test_docstrings_speak_of_the_options_that_exist(entries: list[Entry]) -> None:
    for entry in entries:
        options = {option["name"]: option["description"] for option in entry.document["options"]}
        told = entry.docstring.options
        assert set(told) <= set(options), entry.name
        assert [name for name in options if not (told.get(name) or options[name])] == [], entry.name


# --- mathematics ---------------------------------------------------------------------------------------------------


def test_formulas_become_mathematics_that_browsers_draw(entries: list[Entry]) -> None:
    pieces = [piece.text for entry in entries for piece in entry.docstring.pieces]
    formulas = re.findall(r"^```formula\n(.*?)^```$", page(entries), re.MULTILINE | re.DOTALL)
    assert len(formulas) > 30 and len(pieces) > len(formulas)
    for formula in formulas:
        whole = ElementTree.fromstring(rendered(formula).replace("&#8289;", ""))
        told = "".join(text for text in whole.itertext())
        code = "".join(text for part in whole.iter("code") for text in part.itertext())
        assert told.count("_") == code.count("_"), formula
        assert "<=" not in told and "sum_" not in told


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a job", "a job"),
        ("T_kc", "<math><msub><mi>T</mi><mrow><mi>k</mi><mi>c</mi></mrow></msub></math>"),
        ("x >= 0", "<math><mi>x</mi><mo>≥</mo><mn>0</mn></math>"),
        ("steps/s of ``max``", "steps/s of <code>max</code>"),
        ("x_k* for every k", "<math><msubsup><mi>x</mi><mi>k</mi><mrow><mo>*</mo></mrow></msubsup></math>"
         " for every <math><mi>k</mi></math>"),
    ],
)  # fmt: skip
def test_words_and_mathematics_are_told_apart(text: str, found: str) -> None:
    assert inline(text) == found


def test_cells_that_begin_in_one_column_stay_below_each_other() -> None:
    block = rendered("Program\n    maximise  t\n    s.t.      x <= y     for every k\n")
    assert "<strong>Program</strong>" in block and "repeat(2, var(--inner, auto)) minmax(" in block
    areas = re.findall(r"grid-area: ([^\"]+)\"", block)
    assert areas == [
        "1 / 1 / auto / 2",
        "1 / 2 / auto / -1",
        "2 / 1 / auto / 2",
        "2 / 2 / auto / 3",
        "2 / 3 / auto / -1",
    ]


def test_a_sentence_goes_on_in_its_cell() -> None:
    full = "    x_k  jobs of class k, of which there may be so many that a line of the text is full"
    block = rendered(f"{full}\n         and the next one goes on\n    y_k  other jobs\n")
    assert "is full and the next one goes on</span>" in block
    assert "2 / 1 / auto / 2" in block and "3 / 1" not in block


# --- docstrings ----------------------------------------------------------------------------------------------------

EXAMPLE = """Do the thing
of two lines.

Symbols as in ``Other``.
Sets
    jobs k
Parameters
    a_k  a number

Rule
    x_k = a_k

    and no less

A paragraph, which says
that

    x * 2 <= y_k

holds. As in ``x_1``, [a] or `formulations.smd`.

Options
    first, second  of both ``one``
                   or the other.
    third          a | b

References
    A. Author, "Title",
    2001.
"""


def test_a_docstring_is_taken_apart() -> None:
    found = parse(EXAMPLE)
    assert found.summary == "Do the thing of two lines."
    assert found.pieces == [
        Piece("words", "Symbols as in `Other`."),
        Piece(
            "formula",
            "Sets\n    jobs k\nParameters\n    a_k  a number\nRule\n    x_k = a_k\n\n    and no less",
        ),
        Piece("words", "A paragraph, which says that"),
        Piece("formula", "x * 2 <= y_k"),
        Piece("words", r"holds. As in `x_1`, \[a\] or `formulations.smd`."),
    ]
    assert found.options == {
        "first": "of both `one` or the other.",
        "second": "of both `one` or the other.",
        "third": r"a \| b",
    }
    assert found.references == 'A. Author, "Title", 2001.'


@pytest.mark.parametrize(
    "text", ("Only a summary.", "Only a summary.\n\nOptions\n", "Only a summary.\n\n\n")
)
def test_sections_may_be_missing(text: str) -> None:
    found = parse(text)
    assert (found.summary, found.options, found.references) == ("Only a summary.", {}, "")
    assert not [piece for piece in found.pieces if piece.kind == "formula"]
    assert parse("") == Docstring("")


def test_markdown_keeps_what_it_would_take_for_its_own() -> None:
    assert markdown("a_b * c |x| <y> ``u_v * w``") == r"a\_b \* c \|x\| \<y\> `u_v * w`"


# --- anything in a catalogue ---------------------------------------------------------------------------------------


class Bare(load_formulation("max-throughput")):  # type: ignore[misc]
    """Nothing is said."""

    name = "bare"
    aliases = ("naked",)

    class Options(FormulationOptions):
        many: dict[str, list[float]] = Field(default_factory=dict, description="by the field alone")
        some: int | None = 3
        must: list[str]


def test_an_entry_that_says_little_and_is_shown_nowhere() -> None:
    text = page([Entry(described(Bare), None)])
    assert "[`bare`](#bare) | Nothing is said." in text
    assert "- also called `naked`" in text and "```sh\noptsched formulations bare\n```" in text
    assert "- `many` (object of list of number; `{}`): by the field alone\n" in text
    assert "- `some` (whole number, null; `3`)\n" in text
    assert "- `must` (list of text; required)\n" in text
    assert "![" not in text and "```formula" not in text


def test_a_side_constraint_without_a_hint_that_needs_options_is_not_shown(monkeypatch: Any) -> None:
    from formulation_gallery import figures

    monkeypatch.delitem(figures.HINTS, "anti-affinity")
    assert show_constraint("anti-affinity", of_placement=True) is None


def test_a_side_constraint_as_it_is_typed() -> None:
    assert constraint_text({"kind": "plain"}) == "plain"
    given = {"kind": "many", "jobs": ["a", "b"], "tenant": "x", "limit": 1.5, "idle": True}
    assert constraint_text(given) == 'many:jobs=["a", "b"],tenant=x,limit=1.5,idle=true'
