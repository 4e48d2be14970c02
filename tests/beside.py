"""Published data and reference answers: they may lie beside the checkout, and are never in it."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def needs(path: Path) -> pytest.MarkDecorator:
    """Skips a test where this file or folder is not beside the checkout."""
    return pytest.mark.skipif(not path.exists(), reason=f"{path.name} is not beside this checkout")
