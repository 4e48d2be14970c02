"""Blocks of seeds: `make test-all` runs the first ones, `make studies` the others."""

from __future__ import annotations

from typing import Any

import pytest


def first_of(count: int, *, blocks: int) -> list[Any]:
    """Numbers below ``count``, for `parametrize`; those from ``blocks`` on are marked as studies."""
    later = (pytest.param(block, marks=pytest.mark.study) for block in range(blocks, count))
    return [*range(blocks), *later]
