"""Seeded generators of instances from published facts: GPU datasheets, constants of papers,
closed-form rates.

All work in the same way: `generate` checks the options of a `Generator`, whose function draws
numbers from the seed and returns `Generated`, an instance with notes about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.generate.catalogue import GENERATORS, generate
    from optsched.generate.generator import Generated

# Loaded when used: the catalogue loads every generator
_HOME = {"GENERATORS": ".catalogue", "Generated": ".generator", "generate": ".catalogue"}

__all__ = ["GENERATORS", "Generated", "generate"]

__getattr__ = lazy_names(__name__, _HOME)
