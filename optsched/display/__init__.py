"""How values show themselves:
one line at a prompt, facts and a table in a notebook, a frame in pandas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

from optsched.display.text import amount as amount
from optsched.display.text import count as count
from optsched.display.text import first_of as first_of
from optsched.display.text import in_short
from optsched.display.text import moment as moment
from optsched.display.text import number as number
from optsched.display.text import one_line as one_line
from optsched.display.text import percent as percent
from optsched.display.text import printable as printable
from optsched.display.text import seconds as seconds
from optsched.display.text import shortened as shortened
from optsched.errors import SolverUnavailable

if TYPE_CHECKING:
    import pandas

    from optsched.display.columns import ColumnFormat

LINE = 120
"""Characters of a ``repr``."""

HTML_ROWS = 20
"""Rows of a table that a notebook shows."""

LONGEST = 200
"""Characters of a cell in a notebook."""

TEXTS = (str, list, tuple, dict)
"""Values that are aligned to the left."""

TableColumns = Mapping[str, Sequence[Any]]
"""A table: the values of each column by its name, all columns of equal length."""


class Displayed:
    """A value whose ``repr`` is one line, with its most important facts as text and as HTML.

    Dataclasses state ``repr=False``: they would write a ``repr`` of all their fields otherwise.
    """

    __slots__ = ()

    def _headline(self) -> str:
        """The value in a few words: of a dataclass its fields, where no class says it better."""
        named = fields(cast("Any", self))
        return ", ".join(f"{field.name} {in_short(getattr(self, field.name))}" for field in named)

    def _line(self) -> str:
        """The class and the headline, in one line that fits a screen."""
        return shortened(one_line(f"{type(self).__name__} {self._headline()}"), LINE - 2)

    def _facts(self) -> Mapping[str, str]:
        """What else is worth knowing at first sight, by name."""
        return {}

    def __repr__(self) -> str:
        return f"<{self._line()}>"

    def summary(self) -> str:
        """The value in one line, then one line for each fact.

        Returns
        -------
        str
        """
        lines = [self._line()]
        facts = {name: text for name, text in self._facts().items() if text}
        width = max(map(len, facts), default=0)
        lines += [f"  {name:<{width}}  {one_line(text)}" for name, text in facts.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from optsched.display.html import NOTEBOOK_STYLE

        return f'<div class="optsched">{NOTEBOOK_STYLE}{self._html()}</div>'

    def _html(self) -> str:
        from optsched.display.html import escape, facts_html

        title = f"<p><strong>{type(self).__name__}</strong> {escape(self._headline())}</p>"
        facts = [(name, text) for name, text in self._facts().items() if text]
        return title + (facts_html(facts) if facts else "")


class DisplayedTable(Displayed):
    """A value with rows: a notebook shows the first of them, and ``to_frame`` gives all."""

    __slots__ = ()

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The table as lists, for code that does without pandas.

        Parameters
        ----------
        first : int, optional
            How many rows (default: all), so that a notebook does not pay for a million.

        Returns
        -------
        dict of str to list
            The values of each column by its name, all of equal length.
        """
        raise NotImplementedError

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        SolverUnavailable
            If pandas is not installed; optsched does not depend on it.
        """
        try:
            import pandas
        except ImportError as error:
            raise SolverUnavailable(
                f"to_frame() needs pandas, which cannot be loaded ({error}); "
                "install it with pip install pandas, or take the lists of to_columns()"
            ) from None
        return pandas.DataFrame({name: list(column) for name, column in self.to_columns().items()})

    def _kinds(self) -> Mapping[str, ColumnFormat]:
        """How columns are written whose names mean something else in other tables."""
        return {}

    def _html(self) -> str:
        from optsched.display.columns import RECORDED, title, written
        from optsched.display.html import table_html

        # One row more than is shown tells whether there are more.
        columns = self.to_columns(HTML_ROWS + 1)
        rows = max(map(len, columns.values()), default=0)
        kinds = self._kinds()
        shown = {
            name: [
                shortened(written(name, value, kinds.get(name)), LONGEST)
                for value in column[:HTML_ROWS]
            ]
            for name, column in columns.items()
            if name not in RECORDED
        }
        # A column without a word says nothing; an empty table shows which columns there are.
        said = [name for name, cells in shown.items() if any(cells) or not rows]
        text = [any(isinstance(value, TEXTS) for value in columns[name]) for name in said]
        cells = zip(*(shown[name] for name in said), strict=True)
        more = f"<p>The first {HTML_ROWS} rows; to_frame() has all.</p>" if rows > HTML_ROWS else ""
        headings = [title(name, kinds.get(name)) for name in said]
        return super()._html() + table_html(headings, cells, text) + more


def columns_of(records: Sequence[Mapping[str, Any]]) -> TableColumns:
    """Records as columns, in the order in which their keys come first;
    a record without a key has None there.
    """
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}
