"""`replace` and `cached_property` for immutable values, as in the standard library but faster.

A round of a hundred jobs makes thirty changed copies of values and computes a hundred of their
properties. With the standard library that was an eighth of its time.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property", "replace"]

if TYPE_CHECKING:  # type checkers know the signatures of these two
    from dataclasses import replace
    from functools import cached_property
else:

    def replace(value, /, **changes):
        """A copy of a dataclass with other values of some fields.

        The fields are copied at once. `dataclasses.replace` reads one after the other, and then
        ``__init__`` of a frozen class sets each by a call.
        """
        names, held = value.__dataclass_fields__, getattr(value, "__dict__", {})
        # Some classes compute fields when they are made, or keep them in slots; unknown names are
        # refused.
        if hasattr(value, "__post_init__") or not changes.keys() <= names.keys() <= held.keys():
            return dataclasses.replace(value, **changes)
        copy = object.__new__(type(value))
        fields = copy.__dict__
        for name in names:
            fields[name] = held[name]
        fields.update(changes)
        return copy

    class cached_property(functools.cached_property):
        """A property that is computed when it is first read, without the lock of Python 3.11.

        Two threads may compute it at the same time, as from Python 3.12 on.
        """

        def __get__(self, value: Any, owner: Any = None) -> Any:
            if value is None:
                return self
            found = value.__dict__[self.attrname] = self.func(value)
            return found
