"""Models of a step's time that another model is made of: found by name, fitted, and read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from optsched import performance
from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.performance.files import PERFORMANCE, below
from optsched.performance.profiles import Profiles
from optsched.performance.times import TimeModel

OF = "performance.of"


def fit_part(document: Mapping[str, Any], profiles: Profiles, path: str = OF) -> TimeModel:
    """The model that a performance object names, fitted to profiles with the object's options."""
    with below(path):
        owner, options = _time_model(document)
        return owner.fit(profiles, options)


def read_part(document: Mapping[str, Any], path: str = OF) -> TimeModel:
    """The fitted model of a performance object."""
    with below(path):
        owner, options = _time_model(document)
        return owner.from_document(options)


def _time_model(document: Mapping[str, Any]) -> tuple[type[TimeModel], dict[str, Any]]:
    """The class that a performance object names, which must be a `TimeModel`, and its other entries."""
    options = dict(document)
    name = options.pop("model", None)
    target = performance.CATALOGUE.get(name) if isinstance(name, str) else None
    owner: Any = None
    if target is not None:
        module, _, attribute = target.partition(":")
        owner = getattr(import_module(module), attribute)
    if not (isinstance(owner, type) and issubclass(owner, TimeModel)):
        expected = "the name of a model that is fitted to times of steps"
        raise InvalidInput(f"{PERFORMANCE}.model", show(name), expected)
    return owner, options
