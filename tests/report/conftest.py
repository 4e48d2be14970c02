"""Solutions that several tests of pictures draw."""

from __future__ import annotations

import pytest

import optsched
from optsched.solution import Solution


@pytest.fixture(scope="session")
def quickstart() -> Solution:
    return optsched.solve("@quickstart", "max-min-fairness")
