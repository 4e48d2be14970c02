"""Blocks of seeds: `make test-all` runs the first ones, `make studies` the others."""

from __future__ import annotations

from typing import Any

import pytest


def first_of(count: int, *, blocks: int) -> list[Any]:
    """Numbers below ``count``, for `parametrize`; those from ``blocks`` on are marked as studies."""
    return [*range(blocks), *later(*range(blocks, count))]


def later(*values: Any) -> list[Any]:
    """Each of these for `parametrize`, marked as a study; a tuple is the values of one test."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.study)
        for value in values
    ]
