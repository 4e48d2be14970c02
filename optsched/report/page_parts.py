"""What sections of a page are made of: tables, facts, words, pictures; each a piece of HTML."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from optsched.benchmarking.summary_table import SummaryTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONG = 60
"""Characters from which the text of a cell may be broken."""


def words_html(text: str) -> str:
    """A paragraph of explanation; nothing without words."""
    return f'<p class="words">{escape(text)}</p>' if text else ""


def facts_html(entries: Iterable[tuple[str, str]]) -> str:
    """Names and what is said of them."""
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(told)}</dd>' for name, told in entries)}</dl>"


def table_html(columns: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[bool]) -> str:
    """A table; ``text`` says of each column whether it is text, aligned to the left, or numbers."""
    kinds = [' class="text"' if is_text else "" for is_text in text]
    head = "".join(
        f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, columns, strict=True)
    )
    body = "\n".join(
        f"<tr>{''.join(_cell(cell, is_text) for cell, is_text in zip(row, text, strict=True))}</tr>"
        for row in rows
    )
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _cell(text: str, is_text: bool) -> str:
    kinds = " ".join([*(["text"] if is_text else []), *(["long"] if len(text) > LONG else [])])
    return f'<td class="{kinds}">{escape(text)}</td>' if kinds else f"<td>{escape(text)}</td>"


def summary_html(table: SummaryTable) -> str:
    """A table of results with the words on how to read it."""
    kinds = [column.kind == "text" for column in table.columns]
    return words_html(table.words) + table_html(
        [column.name for column in table.columns], table.texts, kinds
    )


def folded(title: str, html: str) -> str:
    """Something that is shown when it is asked for."""
    return f"<details><summary>{escape(title)}</summary>\n{html}\n</details>"


def picture_html(ax: Axes, words: str) -> str:
    """A picture as inline SVG with a caption; equal pictures give equal text."""
    return f"<figure>\n{inline_svg(ax, words)}\n<figcaption>{escape(words)}</figcaption>\n</figure>"


def inline_svg(ax: Axes, label: str) -> str:
    """The figure of these axes as an SVG element, with text as text, whose ids no other picture of a page has."""
    from matplotlib import rc_context

    from optsched.report.pictures import UNDATED, drawable, plain_text, quiet_glyphs

    figure = ax.get_figure(root=True)
    assert figure is not None
    buffer = io.StringIO()
    plain_text(figure)
    with rc_context({"svg.hashsalt": "optsched", "svg.fonttype": "none"}), quiet_glyphs():
        figure.savefig(buffer, format="svg", metadata=UNDATED["svg"], transparent=True)
    text = drawable(buffer.getvalue())
    text = text[text.index("<svg") :].rstrip()
    prefix = f"p{hashlib.sha256(text.encode()).hexdigest()[:8]}-"
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
