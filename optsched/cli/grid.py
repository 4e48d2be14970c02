"""A table that fits the width it is given: text wraps between words, numbers stay whole, columns go on below."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

# Blanks between two columns.
GAP = 3
WORD = re.compile(r"\S+")
# After these a word that is longer than its column is broken, if it has any.
PUNCTUATION = re.compile(r"[,:;=/_+.-]")


@dataclass(frozen=True)
class Grid:
    """A table of text, whose first columns are text and whose others are numbers, aligned to the right.

    Where it is too wide, text and the heads of columns wrap between words. Where that is not enough, the table is cut
    into blocks below each other, each of which begins with the first column. So nothing is left out.

    Attributes
    ----------
    columns : sequence of str
    rows : sequence of rows of Text
    left : int
        How many of the columns are text.
    title : Text, optional
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Text]]
    left: int
    title: Text | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give the title and the blocks, each after a blank line but for the first under its title."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        yield Text("")
        if self.title is not None:
            yield self.title
        for number, (block, widths) in enumerate(self._blocks(options.max_width)):
            if number:
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
            # A block has at least one column beside the first, however wide
            if len(blocks[-1]) > 1 and sum(used) + GAP * (len(used) - 1) > width:
                blocks.append([0])
            blocks[-1].append(column)
        for block in blocks:
            room = width - GAP * (len(block) - 1)
            # Lower the widest columns first, until the block fits: narrow columns keep their width
            cap = max(natural)
            while cap and sum(_between(least[c], natural[c], cap) for c in block) > room:
                cap -= 1
            yield block, [_between(least[c], natural[c], cap) for c in block]

    def _widths(self, width: int) -> tuple[list[int], list[int]]:
        """The widths that columns would take, and the least with which no word and no number is broken.

        A word that would leave no room for anything beside it is broken all the same.
        """
        natural: list[int] = []
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
    """A text whose words are at most so long: longer ones are broken after punctuation, else anywhere."""
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
