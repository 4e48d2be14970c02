"""The table of performance models: ``python -m formulation_gallery.models`` in the folder ``docs`` makes it anew."""

from __future__ import annotations

from pathlib import Path

from formulation_gallery.docstrings import markdown
from optsched.cli.model import catalogue

PAGE = "reference/performance-models.md"
BEGIN = "<!-- models: made by `make docs` from the catalogue -->\n\n"
END = "\n<!-- end of models -->\n"


def models_table() -> str:
    """Name, what it is made of, and the first sentence of the docstring of every model."""
    rows = [
        (f"`{item['name']}`", item["made_of"], markdown(item["summary"])) for item in catalogue()
    ]
    lines = [("model", "made of", "what it is"), ("---", "---", "---"), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def with_table(text: str) -> str:
    """The page with its table made anew; raises `ValueError` where its marks are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks the marks of its table")
    return before + begin + models_table() + end + after


def main(folder: Path) -> None:
    """Make the table of the page anew."""
    page = folder / PAGE
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path())
