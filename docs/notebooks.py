"""The tutorials as notebooks: ``python notebooks.py`` in the folder ``docs`` makes them anew."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = "tutorials"
FENCE = re.compile(r"^```(python|sh|csv)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def notebook(text: str) -> str:
    """A page as a notebook: its Python and its commands become code, tables become files, all else stays text."""
    cells: list[dict[str, Any]] = []
    end, named = 0, ""
    for block in FENCE.finditer(text):
        words = text[end : block.start()]
        _add(cells, "markdown", _plain(words))
        named = (re.findall(r"`([\w.]+\.csv)`", words) or [named])[-1]
        code = block[2]
        if block[1] == "sh":
            code = "".join(f"!{line}\n" for line in code.splitlines())
        elif block[1] == "csv":
            code = f"%%writefile {named}\n{code}"
        _add(cells, "code", code)
        end = block.end()
    _add(cells, "markdown", _plain(text[end:]))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _plain(text: str) -> str:
    """Links lead nowhere in a notebook."""
    text = re.sub(r" You can also run it\s+\[as a notebook\]\([^)]*\)\.", "", text)
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)


def _add(cells: list[dict[str, Any]], kind: str, text: str) -> None:
    if text.strip():
        cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": text.strip("\n")}
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))


def main(folder: Path) -> None:
    """Write a notebook beside each tutorial."""
    for page in sorted((folder / FOLDER).glob("*.md")):
        page.with_suffix(".ipynb").write_text(notebook(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(Path())
