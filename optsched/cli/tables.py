"""Numbers, tables and lists of all commands.

A table fits the given width: text wraps between words, numbers are not broken, and columns that do
not fit continue below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optsched.display.text import number as number
from optsched.display.text import percent as percent
from optsched.display.text import printable
from optsched.display.text import rounded as rounded
from optsched.display.text import seconds as seconds
from optsched.display.text import share as share

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

LONGEST_NAME = 32
# Names before "and N more".
LISTED = 5
# Blanks between two columns.
GAP = 3
WORD = re.compile(r"\S+")
# A word that is longer than its column is broken after one of these characters, if it has any.
PUNCTUATION = re.compile(r"[,:;=/_+.-]")


def spread(log_sd: float) -> str:
    """`` ± 12 %``: a standard deviation of a log as a factor; empty for none."""
    return f" ± {100 * math.expm1(log_sd):.2g} %" if log_sd > 0 else ""


def name(text: str) -> str:
    """A job's or pool's name, printable and cut in the middle if long."""
    text = printable(text)
    half = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[: half - 2]}...{text[1 - half :]}"


def listed(names: Sequence[str], most: int = LISTED) -> str:
    """``a, b, c and 12 more``."""
    shown = ", ".join(name(item) for item in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def table(
    *columns: str, rows: Iterable[Sequence[str | Text]], title: str = "", left: int = 1
) -> Grid:
    """A table (`Grid`) under its title: the first ``left`` columns are text, the others numbers."""
    from rich.text import Text

    made = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    return Grid(columns, made, left, heading(title) if title else None)


def heading(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")


def facts(entries: Iterable[tuple[str, str | Text]]) -> Table:
    """Names and values, in two aligned columns."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for key, words in entries:
        made.add_row(key, Text(words) if isinstance(words, str) else words)
    return made


def more(hidden: int, one: str = "", many: str = "", see: str = "-o or --json") -> Iterator[str]:
    """``... and 12 more rows (use --json)``, where something is hidden."""
    if hidden > 0:
        what = f" {one if hidden == 1 else many or one + 's'}" if one else ""
        yield f"... and {hidden:,} more{what} (use {see})"


def section(
    title: str, items: Sequence[str], most: int, one: str = "", see: str = "-o or --json"
) -> Iterator[RenderableType]:
    """A list of limited length under a title; empty if there are no items."""
    if items:
        yield ""
        yield heading(title)
        yield bullets(items[:most])
        yield from more(len(items) - most, one, see=see)


def optional(value: float | None, written: Callable[[float], str]) -> str:
    """A formatted number; empty for None."""
    return "" if value is None else written(value)


def bullets(items: Iterable[str]) -> Table:
    """A list with hanging indents."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for item in items:
        made.add_row("-", Text(printable(item)))
    return made


# --- tables that fit the terminal -----------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """A table of text, whose first columns are text and
    whose others are numbers, aligned to the right.

    If it is too wide, texts and headings wrap between words. If that is not enough, the table is
    split into blocks, one below the other, each of which begins with the first column. So nothing
    is left out.

    Attributes
    ----------
    columns : sequence of str
    rows : sequence of rows of Text
    left : int
        Number of text columns.
    title : Text, optional
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Text]]
    left: int
    title: Text | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give the title and the blocks,
        each after a blank line but for the first under its title.
        """
        from rich import box
        from rich.table import Table
        from rich.text import Text

        yield Text("")
        if self.title is not None:
            yield self.title
        for place, (block, widths) in enumerate(self._blocks(options.max_width)):
            if place:
                yield Text("")
            made = Table(
                box=box.SIMPLE_HEAD,
                pad_edge=False,
                show_edge=False,
                header_style="bold",
                padding=(0, 1),
            )
            for column, width in zip(block, widths, strict=True):
                head = _broken(Text(self.columns[column]), width)
                made.add_column(
                    head,
                    justify="left" if column < self.left else "right",
                    width=width,
                    overflow="fold",
                )
            for row in self.rows:
                made.add_row(
                    *(
                        _broken(row[column], width)
                        for column, width in zip(block, widths, strict=True)
                    )
                )
            yield made

    def _blocks(self, width: int) -> Iterator[tuple[list[int], list[int]]]:
        """The columns of each block, and their widths."""
        natural, least = self._widths(width)
        blocks = [[0]]
        for column in range(1, len(self.columns)):
            used = [least[other] for other in (*blocks[-1], column)]
            # A block has at least one column after the first, even if it is too wide
            if len(blocks[-1]) > 1 and sum(used) + GAP * (len(used) - 1) > width:
                blocks.append([0])
            blocks[-1].append(column)
        for block in blocks:
            room = width - GAP * (len(block) - 1)
            # Reduce the widest columns first, until the block fits; narrow columns keep their width
            cap = max(natural)
            while cap and sum(_between(least[c], natural[c], cap) for c in block) > room:
                cap -= 1
            yield block, [_between(least[c], natural[c], cap) for c in block]

    def _widths(self, width: int) -> tuple[list[int], list[int]]:
        """The natural widths of columns, and the least widths that break no word and no number.

        A word that would leave no room for another column is broken anyway.
        """
        natural = []
        least: list[int] = []
        for place, head in enumerate(self.columns):
            cells = [row[place] for row in self.rows]
            widest = max((line.cell_len for cell in cells for line in cell.split()), default=0)
            parts = [head] if place >= self.left else [head, *(cell.plain for cell in cells)]
            word = max((len(part) for text in parts for part in WORD.findall(text)), default=0)
            # The first column is repeated in every block, so it may take half of the width at most
            most = width // 2 if place == 0 else width - least[0] - GAP
            natural.append(max(widest, len(head)))
            least.append(max(1, min(word if place < self.left else max(widest, word), most)))
        return natural, least


def _between(least: int, natural: int, cap: int) -> int:
    return max(least, min(natural, cap))


def _broken(text: Text, width: int) -> Text:
    """A text with words of limited length: longer words are broken after punctuation, else
    anywhere.
    """
    cuts = []
    for word in WORD.finditer(text.plain):
        start = word.start()
        while word.end() - start > width:
            marks = [mark.end() for mark in PUNCTUATION.finditer(text.plain, start, start + width)]
            start = marks[-1] if marks else start + width
            cuts.append(start)
    if not cuts:
        return text
    joiner = text.blank_copy("\n")
    return joiner.join(text.divide(cuts))
