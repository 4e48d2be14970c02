"""Formulas of the pages as MathML: a hook of mkdocs, which runs while the site is built.

Docstrings and pages write formulas in plain text, as ``sum_c T_kc x_c <= n_k``. A block that is fenced as ``formula``
keeps its lines and its indents, and parts that begin in one column stay below each other. Identifiers, operators and
numbers become MathML, which browsers draw without scripts. Words stay words.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

FENCE = re.compile(r"^```formula\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GREEK = {
    "alpha": "α",
    "lambda": "λ",
    "mu": "μ",
    "rho": "ρ",
    "tau": "τ",
    "theta": "θ",
}
BIG = {"sum": "∑", "prod": "∏", "max": "max", "min": "min", "argmax": "argmax", "argmin": "argmin"}
OPERATORS = {
    "<=": "≤",
    ">=": "≥",
    ":=": "≔",
    "->": "→",
    "!=": "≠",
    "==": "=",
    "-/+": "∓",
    "-": "−",
    "*": "·",
    "...": "…",
}
FUNCTIONS = ("log", "exp", "floor", "ceil", "median", "max", "min")

PART = r"(?:\{[^}]*\}|\([^)\s]*\)|-?\w+'?)"
RAISED = rf"(?:\([^)]*\)|{PART})"
LAST = 14
"""Least width of the last column of a grid, in digits."""
FULL = 84
"""Columns from which a line of text is full, so that the next one may go on with its sentence."""
TOKEN = re.compile(
    r"(?P<code>``[^`]+``|`[^`]+`|\b[a-z_]{3,}(?:\.[a-z_]{3,})+\b)"
    rf"|(?P<big>\b(?:sum|prod|max|min|argmax|argmin|median)_{PART})"
    rf"|(?P<name>\b[A-Za-z]+(?:\*|')?(?:_{PART})(?:\^{PART})?\*?(?:\^{PART})?|\b[A-Za-z]+\^{RAISED}|\b[a-zA-Z]\*)"
    r"|(?P<word>s\.t\.|[A-Za-z]{2,}(?:[-/'][A-Za-z]+)*|\b[A-Z][a-z]+\b|[A-Za-z]-[a-z]{2,})"
    r"|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<operator>\.\.\.|<=|>=|:=|->|!=|==|-/\+|[<>=+\-*/^])"
    r"|(?P<single>[A-Za-z]'?)"
    r"|(?P<mark>[()\[\]{}|,;:])"
    r"|(?P<space> )"
    r"|(?P<other>.)"
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return FENCE.sub(lambda block: rendered(block[1]), markdown)


def rendered(text: str) -> str:
    """A block of formulas as HTML: its headings, and between them grids of cells."""
    parts: list[str] = []
    lines: list[str] = []
    for line in [*text.rstrip("\n").split("\n"), ""]:
        heading = re.fullmatch(r"[A-Z][a-z]+", line)
        if line.strip() and not heading:
            lines.append(line)
            continue
        parts += [_grid(lines)] if lines else []
        parts += [f"<strong>{line}</strong>"] if heading else []
        lines = []
    html = "\n".join(parts)
    return f'<div class="formula" markdown="0">\n{html}\n</div>'


def _grid(lines: list[str]) -> str:
    """Lines whose cells begin in equal columns of the text, so that they begin in equal columns of the page."""
    rows = _joined([_cells(line) for line in lines])
    starts = sorted({start for row in rows for start, _ in row})
    found = []
    indents = set(range(1, len(starts)))
    for number, row in enumerate(rows, 1):
        ends = [*(start for start, _ in row[1:]), None]
        for (start, cell), end in zip(row, ends, strict=True):
            first, last = starts.index(start) + 1, -1 if end is None else starts.index(end) + 1
            if last == first + 1:
                indents.discard(first)
            found.append(
                f'<span style="grid-area: {number} / {first} / auto / {last}">{inline(cell)}</span>'
            )
    # A column in which no cell ends would have no width. The last one takes what is left, and its words wrap.
    found += [
        f'<span class="indent" style="grid-column: {column}"></span>' for column in sorted(indents)
    ]
    columns = f"repeat({len(starts) - 1}, var(--inner, auto)) " if len(starts) > 1 else ""
    return (
        f'<div style="grid-template-columns: {columns}minmax({LAST}ch, 1fr)">{"".join(found)}</div>'
    )


def _cells(line: str) -> list[tuple[int, str]]:
    """The parts of a line between two spaces or more, each with the column where it begins."""
    return [(match.start(), match[0]) for match in re.finditer(r"\S+(?: \S+)*", line)]


def _joined(rows: list[list[tuple[int, str]]]) -> list[list[tuple[int, str]]]:
    """Rows, with sentences that go on below themselves in one cell, so that the page breaks them where it must."""
    found: list[list[tuple[int, str]]] = []
    for row in rows:
        (start, text), before = row[0], found[-1][-1] if found else (-1, "")
        goes_on = len(row) == 1 and start >= before[0] and before[0] + len(before[1]) >= FULL
        if found and goes_on and re.match(r"[a-z(]", text):
            found[-1][-1] = (before[0], f"{before[1]} {text}")
        else:
            found.append(row)
    return found


def inline(text: str) -> str:
    """Words with the mathematics between them."""
    tokens = [(str(match.lastgroup), match[0]) for match in TOKEN.finditer(text)]
    tokens = [_classified(kind, value, tokens, place) for place, (kind, value) in enumerate(tokens)]
    found, run = [], []
    for token in [*tokens, ("end", "")]:
        if token[0] in ("big", "name", "number", "operator", "single", "function", "mark", "space"):
            run.append(token)
        else:
            found.append(_run(run))
            run = []
            found.append(_text(*token))
    return "".join(found)


def _classified(
    kind: str, value: str, tokens: list[tuple[str, str]], place: int
) -> tuple[str, str]:
    """A token, where its neighbours decide what it is."""
    following = [token for token in tokens[place + 1 :] if token[0] != "space"]
    if kind == "word" and value in GREEK:
        return "single", value
    if kind == "word" and value in FUNCTIONS and following[:1] and following[0][1] in ("(", "log"):
        return "function", value
    article = value in ("a", "A", "I") and following[:1] and following[0][0] == "word"
    if kind == "single" and article and following[0][1] not in ("in", "and"):
        return "word", value
    return kind, value


def _run(tokens: list[tuple[str, str]]) -> str:
    """Tokens without a word between them: one formula, with marks and spaces at its ends as text."""
    first, last = 0, len(tokens)
    while first < last and tokens[first][0] in ("mark", "space") and tokens[first][1] not in "([{|":
        first += 1
    while (
        last > first
        and tokens[last - 1][0] in ("mark", "space")
        and tokens[last - 1][1] not in ")]}|"
    ):
        last -= 1
    inner = tokens[first:last]
    if not any(
        kind in ("big", "name", "number", "operator", "single", "function") for kind, _ in inner
    ):
        return "".join(_text(*token) for token in tokens)
    before = "".join(_text(*token) for token in tokens[:first])
    after = "".join(_text(*token) for token in tokens[last:])
    return f"{before}<math>{''.join(map(_symbol, inner))}</math>{after}"


def _text(kind: str, value: str) -> str:
    if kind == "code":
        return f"<code>{escape(value.strip('`'))}</code>"
    return escape(value)


def _symbol(token: tuple[str, str]) -> str:
    """A token as MathML."""
    kind, value = token
    if kind == "space":
        return ""
    if kind == "number":
        return f"<mn>{value}</mn>"
    if kind == "operator":
        return f"<mo>{escape(OPERATORS.get(value, value))}</mo>"
    if kind == "mark":
        stretchy = ' stretchy="false"' if value in "()[]{}|" else ""
        return f"<mo{stretchy}>{value}</mo>"
    if kind == "function":
        return f"<mi>{value}</mi><mo>&#8289;</mo>"
    if kind == "big":
        name, _, below = value.partition("_")
        sign = BIG.get(name, name)
        return f"<munder><mo movablelimits='false'>{sign}</mo>{_below(below)}</munder>"
    return _identifier(value)


def _identifier(value: str) -> str:
    """A name with its star, subscript and superscript, each perhaps empty."""
    match = re.fullmatch(
        rf"([A-Za-z]+)([*']*)(?:_({PART}))?(\*?)(?:\^({RAISED}))?(\*?)(?:\^({PART}))?", value
    )
    if match is None:
        return f"<mtext>{escape(value)}</mtext>"
    base, mark, below, star, above, last, more = (part or "" for part in match.groups())
    marks = (mark + star + last).replace("'", "′")
    raised = "".join(
        [*(f"<mo>{sign}</mo>" for sign in marks), *(_below(part) for part in (above, more) if part)]
    )
    name = f"<mi>{GREEK.get(base, base)}</mi>"
    if below and raised:
        return f"<msubsup>{name}{_below(below)}<mrow>{raised}</mrow></msubsup>"
    if below:
        return f"<msub>{name}{_below(below)}</msub>"
    return f"<msup>{name}<mrow>{raised}</mrow></msup>" if raised else name


def _below(text: str) -> str:
    """A subscript or superscript; braces only hold it together."""
    text = text[1:-1] if text[:1] == "{" or text[:1] == "(" else text
    text = text.replace("'", "′")
    if re.fullmatch(r"[a-z]{2,3}", text) and text not in GREEK:
        return f"<mrow>{''.join(f'<mi>{letter}</mi>' for letter in text)}</mrow>"
    if re.fullmatch(r"\w+", text):
        return f"<mn>{text}</mn>" if text.isdigit() else f"<mi>{GREEK.get(text, text)}</mi>"
    tokens = [(str(match.lastgroup), match[0]) for match in TOKEN.finditer(text)]
    symbols = [
        "<mo>∈</mo>"
        if value == "in"
        else f"<mtext>{GREEK.get(value, value)}</mtext>"
        if kind == "word"
        else _symbol((kind, value))
        for kind, value in tokens
    ]
    return f"<mrow>{''.join(symbols)}</mrow>"
