"""Facts and tables as HTML, for notebooks and for the pages of reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["escape", "facts_html", "table_html"]

# As on the pages of reports, whose style sheet notebooks do not have.
NOTEBOOK_STYLE = """<style>
.optsched dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1em; margin: 0 0 .6em; }
.optsched dt { font-weight: normal; opacity: .7; }
.optsched dd { margin: 0; }
.optsched th, .optsched td { text-align: right; padding: .1em .5em; }
.optsched th.text, .optsched td.text { text-align: left; }
.optsched td:first-child:not(.long) { white-space: nowrap; }
.optsched .wide { overflow-x: auto; }
</style>"""

LONG = 60
"""Characters from which the text of a cell may be broken."""


def facts_html(entries: Iterable[tuple[str, str]]) -> str:
    """Names and what is said of them."""
    parts = [f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in entries]
    return f"<dl>{''.join(parts)}</dl>"


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
