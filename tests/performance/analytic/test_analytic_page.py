"""The page of the analytic models tells every option with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.analytic.model import AnalyticOptions
from optsched.performance.prior import PriorDocument

pytestmark = pytest.mark.documentation

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "analytic-models.md"


@pytest.mark.parametrize(
    ("section", "model"),
    [("The analytic model", AnalyticOptions), ("The prior model", PriorDocument)],
)
def test_options(section: str, model: type[BaseModel]) -> None:
    _, _, text = PAGE.read_text().partition(f"## {section}\n")
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", text.partition("\n## ")[0], re.MULTILINE)
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in model.model_fields.items()
    }
    told = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in defaults.items()
    }
    assert rows == list(told.items())
