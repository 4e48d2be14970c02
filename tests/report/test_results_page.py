"""Pages of results: self-contained, well-formed, without scripts, with all that is told; and the profile's picture."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from optsched.benchmarking import Results

# Private names: what a picture or a page is made of, before it is drawn
from optsched.benchmarking.profiles import profile_of
from optsched.benchmarking.summary import summary
from optsched.errors import UsageError
from optsched.report.page import STYLE, Section, inline_svg, page, table_html
from optsched.report.pictures import new_axes
from optsched.report.results_page import profile_picture, result_sections

pytestmark = pytest.mark.picture

ROWS = [
    {"instance": f"<p{k}> & co", "formulation": "f", "solver": solver, "status": "optimal", "total_s": seconds,
     "objective": 1.0 + k * (solver == "slow"), "sense": "min", "proof": "claimed", "seed": 0, "error": None,
     "optsched": "0.1.0", "date": f"2026-01-0{k + 1}T00:00:00Z"}
    for k in range(3) for solver, seconds in (("fast", 0.5), ("slow", 1.0 + k))
]  # fmt: skip


class Checker(HTMLParser):
    """Tags that are opened and closed in order, their ids, and what they refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self._note(attributes)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._note(attributes)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _note(self, attributes: list[tuple[str, str | None]]) -> None:
        told = dict(attributes)
        self.ids += [told["id"] or ""] if "id" in told else []
        self.links += [
            value or "" for name, value in attributes if name in ("href", "src", "xlink:href")
        ]


def made() -> str:
    results = Results.of(ROWS)
    return page("A <title>", "lead", result_sections(results, summary(results), ["r.csv"]))


def test_a_page_stands_alone() -> None:
    text = made()
    checker = Checker()
    checker.feed(text)
    assert checker.open == [] and len(set(checker.ids)) == len(checker.ids)
    assert not checker.tags & {"script", "link", "img", "iframe"} and "@import" not in text
    assert all(link.startswith("#") and link[1:] in checker.ids for link in checker.links)
    assert all(target in checker.ids for target in re.findall(r"url\(#([^)]+)\)", text))
    assert text.count("<svg") == 2 and text == made()
    assert "&lt;p0&gt; &amp; co" in text and "<p0>" not in text and "A &lt;title&gt;" in text
    assert len(text) < 200_000


def test_a_page_says_what_there_is() -> None:
    text = re.sub(r"<svg.*?</svg>", "", made(), flags=re.DOTALL)
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles == [
        "What was run",
        "Outcomes",
        "Times",
        "Times, pair by pair",
        "Gaps to the best known objective",
        "Rows",
    ]
    assert "<dd>6 of 3 problems and 2 methods</dd>" in text
    assert "<dd>2026-01-01T00:00:00Z to 2026-01-03T00:00:00Z</dd>" in text
    assert '<td class="text">fast</td><td>3</td><td>500 ms</td>' in text


@pytest.mark.unit
def test_sections_can_be_put_together() -> None:
    text = page(
        "t",
        "",
        [Section("Same", "<p>1</p>"), Section("Same", "<p>2</p>"), Section("É", "<p>3</p>")],
    )
    assert re.findall(r'<section id="([^"]+)">', text) == ["same", "same-again", "section"]
    assert '<a href="#same-again">Same</a>' in text


@pytest.mark.unit
def test_a_long_cell_may_be_broken() -> None:
    assert '<td class="text long">' in table_html(["x"], [["a b " * 30]], [True])


@pytest.mark.unit
def test_headings_are_broken_rather_than_columns_cut_off() -> None:
    assert re.search(r"^th, td {[^}]* white-space: nowrap;", STYLE, re.MULTILINE)
    assert re.search(r"^th {[^}]* white-space: normal;", STYLE, re.MULTILINE)


def test_pictures_of_one_page_have_ids_of_their_own() -> None:
    svgs = []
    for count in (3, 4):
        ax = new_axes(2, 2)
        ax.plot(np.arange(count))
        svgs.append(inline_svg(ax, "a <picture>"))
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in svgs]
    assert ids[0] and not ids[0] & ids[1]
    assert (
        svgs[0].startswith('<svg role="img" aria-label="a &lt;picture&gt;"') and "<text" in svgs[0]
    )


# --- the picture ---------------------------------------------------------------------------------------------------


def drawn(values: list[dict[int, float]], problems: int) -> Any:
    names = [f"m{k}" for k in range(len(values))]
    return profile_picture(profile_of(values, names, range(problems)))


@pytest.mark.unit
def test_the_lines_are_the_shares() -> None:
    ax = drawn([{0: 1.0, 1: 4.0}, {0: 2.0, 1: 1.0, 2: 3.0}], 4)
    first, second = (line.get_xydata() for line in ax.get_lines())
    end = 4.0**1.15
    assert first.tolist() == [[1, 0], [1, 0.25], [4, 0.5], [end, 0.5]]
    assert second.tolist() == [[1, 0], [1, 0.25], [1, 0.5], [2, 0.75], [end, 0.75]]
    assert [line.get_drawstyle() for line in ax.get_lines()] == ["steps-post"] * 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "m1",
        "m0",
    ]  # as the lines end
    assert (
        ax.get_xscale() == "log" and ax.get_xlabel() and ax.get_ylabel() == "share of the problems"
    )


@pytest.mark.parametrize(
    ("largest", "names"),
    [
        (1.04, "+0 % +1 % +2 %"),
        (4.0, "1 1.5 2 3"),
        (60.0, "1 2 5 10 20 50 100"),
        (5e4, "1 10 100 1000 10000 100000"),
    ],
)
def test_the_ticks(largest: float, names: str) -> None:
    ax = drawn([{0: 1.0}, {0: largest}], 1)
    told = " ".join(label.get_text() for label in ax.get_xticklabels())
    assert told.startswith(names)


@pytest.mark.unit
def test_nothing_to_draw() -> None:
    with pytest.raises(UsageError, match="there is no profile to draw: no task was solved"):
        drawn([{}, {}], 3)
