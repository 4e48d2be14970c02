"""Models that a learned model stands on: found by name among those of a step's time."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from optsched import performance
from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.performance.paths import below
from optsched.performance.times import TimeModel

PATH = "performance.of"


def base_class(
    document: Mapping[str, Any], path: str = PATH
) -> tuple[type[TimeModel], dict[str, Any]]:
    """The class that a performance object names, which must be a `TimeModel`, and the object's other entries."""
    options = dict(document)
    name = options.pop("model", None)
    target = performance.CATALOGUE.get(name) if isinstance(name, str) else None
    owner: Any = None
    if target is not None:
        module, _, attribute = target.partition(":")
        owner = getattr(import_module(module), attribute)
    if not (isinstance(owner, type) and issubclass(owner, TimeModel)):
        raise InvalidInput(
            f"{path}.model", show(name), "the name of a model that is fitted to times of steps"
        )
    return owner, options


def base_from_document(document: Mapping[str, Any]) -> TimeModel:
    """The base of a document below ``performance.of``."""
    owner, options = base_class(document)
    with below(PATH):
        return owner.from_document(options)
