"""The tutorials as notebooks with their outputs, and the outputs on the pages of the site.

``python notebooks.py`` in the folder ``docs`` makes the notebooks anew, and runs those whose code has changed; this
needs nbclient and ipykernel. mkdocs calls `on_page_markdown`, which shows below each block what its notebook printed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = "tutorials"
# A line of progress and what clears it: a kernel sets TERM itself, and a slow machine takes its second.
PROGRESS = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h(\x1b\[1A)?\x1b\[2K", re.DOTALL)
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
    return written(cells)


def written(cells: list[dict[str, Any]]) -> str:
    """A notebook as its file has it."""
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


# --- outputs -------------------------------------------------------------------------------------


def code_cells(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells that are run."""
    return [cell for cell in cells if cell["cell_type"] == "code"]


def sources(cells: list[dict[str, Any]]) -> list[str]:
    """The code of a notebook."""
    return [cell["source"] for cell in code_cells(cells)]


def printed(cell: dict[str, Any]) -> str:
    """What a cell printed."""
    return "".join(output["text"] for output in cell["outputs"])


def run(text: str) -> list[str]:
    """Run a notebook in a kernel, in its own folder; what each of its code cells printed.

    Raises
    ------
    ImportError
        Without nbclient, nbformat or ipykernel.
    CellExecutionError
        If a cell fails.
    """
    import ipykernel  # noqa: F401
    import nbformat
    from nbclient import NotebookClient

    document = nbformat.reads(text, as_version=4)
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Plain text in lines of one length, without the lines of progress of a terminal
    environment = {
        **os.environ,
        "PATH": commands,
        "TERM": "dumb",
        "NO_COLOR": "1",
        "COLUMNS": "92",
    }
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(document, timeout=300, kernel_name="python3", resources=resources)
        client.execute(env=environment)
    found = []
    for cell in code_cells(document.cells):
        failed = [output for output in cell.outputs if output.output_type == "error"]
        assert not failed, failed
        streams = "".join(output.get("text", "") for output in cell.outputs)
        found.append(PROGRESS.sub("", streams.replace("\r", "")))
    return found


def with_outputs(text: str, outputs: list[str]) -> str:
    """A notebook with what its code cells printed."""
    cells = json.loads(text)["cells"]
    for cell, output in zip(code_cells(cells), outputs, strict=True):
        stream = {"name": "stdout", "output_type": "stream", "text": output}
        cell["outputs"] = [stream] if output else []
    return written(cells)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page: a tutorial shows below each block what it prints."""
    source = Path(page.file.abs_src_path)
    if source.parent.name != FOLDER:
        return markdown
    cells = code_cells(json.loads(source.with_suffix(".ipynb").read_text("utf-8"))["cells"])
    outputs = iter([printed(cell).rstrip() for cell in cells])

    def shown(block: re.Match[str]) -> str:
        output = next(outputs)
        if block[1] == "csv" or not output:
            return block[0]
        return f"{block[0]}\n\n```{{ .text .output }}\n{output}\n```"

    return FENCE.sub(shown, markdown)


def main(folder: Path) -> None:
    """Write a notebook beside each tutorial; outputs are kept as long as the code is the same."""
    for page in sorted((folder / FOLDER).glob("*.md")):
        file = page.with_suffix(".ipynb")
        made = notebook(page.read_text("utf-8"))
        before = json.loads(file.read_text("utf-8"))["cells"] if file.exists() else []
        outputs = [printed(cell) for cell in code_cells(before)]
        if sources(before) != sources(json.loads(made)["cells"]) or not any(outputs):
            outputs = run(made)
        file.write_text(with_outputs(made, outputs), "utf-8")


if __name__ == "__main__":
    main(Path())
