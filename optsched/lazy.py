"""Facades that load a name when it is asked for, so that importing a package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose names live in other modules.

    Parameters
    ----------
    package : str
        The package, as ``__name__`` of its ``__init__``.
    home : mapping of str to str
        The module that defines each name, relative to the package or absolute; see `importlib.import_module`.
    """

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
