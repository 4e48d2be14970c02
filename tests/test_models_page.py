"""The table of performance models is that of the catalogue."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from optsched import registry

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))

from formulation_gallery.models import PAGE, models_table, with_table  # noqa: E402

pytestmark = pytest.mark.documentation


def test_the_table_is_up_to_date() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert text == with_table(text), "run: cd docs && python -m formulation_gallery.models"


def test_every_model_has_a_line_in_words() -> None:
    rows = [line.strip("| \n").split(" | ") for line in models_table().splitlines()[2:]]
    assert [row[0].strip("`") for row in rows] == registry.names("performance model")
    assert [row for row in rows if len(row) != 3 or len(row[2]) < 10] == []


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        with_table("nothing")
