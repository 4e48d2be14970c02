"""One self-contained page of HTML:
sections one below the other, no scripts, no external resources.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from optsched.api import write_atomically
from optsched.benchmarking.summary_table import SummaryTable
from optsched.display.html import table_html
from optsched.report.palette import INK, LINE, MAIN, MUTED, PANEL, PAPER
from optsched.report.pictures import figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# --- parts of sections ---------------------------------------------------------------------------


def words_html(text: str) -> str:
    """A paragraph of explanation; empty for an empty text."""
    return f'<p class="words">{escape(text)}</p>' if text else ""


def summary_html(table: SummaryTable) -> str:
    """A table of results with its explanation."""
    kinds = [column.kind == "text" for column in table.columns]
    return words_html(table.words) + table_html(
        [column.name for column in table.columns], table.texts, kinds
    )


def folded(title: str, html: str) -> str:
    """Content that is collapsed until the reader opens it."""
    return f"<details><summary>{escape(title)}</summary>\n{html}\n</details>"


def picture_html(ax: Axes, words: str) -> str:
    """A picture as inline SVG with a caption; equal pictures give equal text."""
    return f"<figure>\n{inline_svg(ax, words)}\n<figcaption>{escape(words)}</figcaption>\n</figure>"


def inline_svg(ax: Axes, label: str) -> str:
    """The figure of these axes as an SVG element, with text as text,
    with ids that are unique within a page.
    """
    from matplotlib import rc_context

    from optsched.report.pictures import UNDATED, drawable, plain_text, quiet_glyphs

    figure = figure_of(ax)
    buffer = io.StringIO()
    plain_text(figure)
    with rc_context({"svg.hashsalt": "optsched", "svg.fonttype": "none"}), quiet_glyphs():
        # Set a background: dark text on a transparent background is not readable in a dark notebook
        figure.savefig(buffer, format="svg", metadata=UNDATED["svg"], facecolor=PAPER)
    text = drawable(buffer.getvalue())
    text = text[text.index("<svg") :].rstrip()
    prefix = f"p{hashlib.sha256(text.encode()).hexdigest()[:8]}-"
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)


# --- the page ------------------------------------------------------------------------------------

STYLE = f"""
:root {{ color-scheme: only light; }}
body {{ margin: 0; background: {PAPER}; color: {INK}; font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }}
main {{ max-width: 72rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }}
h2 {{ font-size: 1.2rem; margin: 2.6rem 0 .5rem; padding-top: .6rem; border-top: 1px solid {LINE}; }}
p, figcaption {{ max-width: 60rem; }}
.lead, .words, figcaption {{ color: {MUTED}; }}
.words, figcaption {{ font-size: .9rem; margin: .5rem 0; }}
nav {{ margin: 1rem 0 0; font-size: .9rem; }}
nav a {{ color: {MAIN}; margin-right: 1rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid {LINE}; }}
th {{ background: {PANEL}; font-weight: 600; white-space: normal; vertical-align: bottom; }}
th.text, td.text {{ text-align: left; }}
td.long {{ white-space: normal; min-width: 16rem; }}
tbody tr:hover {{ background: {PANEL}; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: .8rem 0; }}
dt {{ color: {MUTED}; }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
figure {{ margin: 1rem 0; }}
figure svg {{ max-width: 100%; height: auto; }}
details summary {{ cursor: pointer; color: {MAIN}; }}
@media print {{ nav, details:not([open]) {{ display: none; }} }}
"""


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes
    ----------
    title : str
        Plain text.
    html : str
        Content, as HTML that is already escaped.
    """

    title: str
    html: str


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """A page: title, a line below it, links to the sections, the sections."""
    anchors = _anchors([section.title for section in sections])
    links = "".join(
        f'<a href="#{anchor}">{escape(section.title)}</a>'
        for anchor, section in zip(anchors, sections, strict=True)
    )
    body = "\n".join(
        f'<section id="{anchor}">\n<h2>{escape(section.title)}</h2>\n{section.html}\n</section>'
        for anchor, section in zip(anchors, sections, strict=True)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n<nav>{links}</nav>\n{body}\n'
        "</main>\n</body>\n</html>\n"
    )


def write_page(text: str, path: str | Path) -> None:
    """Write a page, atomically."""
    write_atomically(path, text.encode())


def _anchors(titles: Sequence[str]) -> list[str]:
    """A unique anchor for each section."""
    found = []
    for title in titles:
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        while name in found:
            name += "-again"
        found.append(name)
    return found
