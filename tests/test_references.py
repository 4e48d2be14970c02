"""Names of modules, classes and functions that docs and docstrings mention exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.documentation

ROOT = Path(__file__).parent.parent
GROUPS = {"optsched.models", "optsched.rankings"}
"""Groups of entry points, which are named like modules."""
OF_OTHERS = {"how-it-compares.md"}
"""Pages that name files of other projects."""


def mentioned() -> set[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    code = [path for name in ("optsched", "formulations") for path in (ROOT / name).rglob("*.py")]
    pattern = re.compile(r"`((?:optsched|formulations)(?:\.\w+)+)")
    return {name for path in [*pages, *code] for name in pattern.findall(path.read_text())}


def exists(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            fields = {**getattr(found, "model_fields", {}), **getattr(found, "__annotations__", {})}
            if part in fields:
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_files_that_pages_mention_exist() -> None:
    known = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")}
    missing = [
        f"{page.name}: {file}"
        for page in (ROOT / "docs").rglob("*.md")
        if page.name not in OF_OTHERS
        for file in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text())
        if not any(path.endswith(f"/{file}") or path == file for path in known)
    ]
    assert missing == []


def test_names_that_are_mentioned_exist() -> None:
    names = mentioned()
    assert len(names) > 100
    assert sorted(name for name in names - GROUPS if not exists(name)) == []


def test_headings_in_docstrings_have_lines_of_their_own() -> None:
    """A heading that runs into its text is a heading for nobody, and lost to the reference."""
    run_on = re.compile(r"^\s*\w+ -{3,} ", re.MULTILINE)
    assert [
        f"{path.relative_to(ROOT)}: {found.group().strip()}"
        for name in ("optsched", "formulations")
        for path in sorted((ROOT / name).rglob("*.py"))
        for found in run_on.finditer(path.read_text())
    ] == []
