"""Performance objects, in files of fitted models and inside other objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from optsched.display import Displayed, count
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, Name, PerformanceDocument, Tuple
from optsched.instance.files import pretty_json, read_document
from optsched.instance.reading import show, validate

FORMAT = "optsched-model/1"

# Fields of fitted models that map workloads to mappings by GPU type.
FITTED_FIELDS = ("coefficients", "curves", "points", "rates", "groups", "compute", "chosen")


class PerformanceObject(Displayed, dict[str, Any]):
    """A model as plain data, as in files and instances; its ``repr`` is one line."""

    __slots__ = ()

    @property
    def parts(self) -> list[PerformanceObject]:
        """The performance objects that it contains."""
        inner = [self["of"]] if self.get("of") else []
        return [PerformanceObject(part) for part in (*self.get("models", ()), *inner)]

    @property
    def names(self) -> list[str]:
        """Names of the models of a chain in order, or of the one model, with the models that it
        contains.
        """
        inside = [name for part in self.parts for name in part.names]
        if self["model"] == "chain":
            return inside
        return [f"{self['model']} ({' and '.join(inside)})" if inside else self["model"]]

    @property
    def fitted(self) -> dict[str, tuple[str, ...]]:
        """The GPU types on which each workload was measured; empty for models that are not fitted.

        Returns
        -------
        dict of str to tuple of str
        """
        found = [
            (workload, gpu)
            for name in FITTED_FIELDS
            for workload, by_gpu in self.get(name, {}).items()
            for gpu in by_gpu
        ] + [
            (workload, gpu)
            for part in self.parts
            for workload, gpus in part.fitted.items()
            for gpu in gpus
        ]
        return {
            workload: tuple(dict.fromkeys(gpu for other, gpu in found if other == workload))
            for workload, _ in found
        }

    def _headline(self) -> str:
        gpu_types = {gpu for gpus in self.fitted.values() for gpu in gpus}
        models = ", then ".join(self.names)
        if not gpu_types:
            return models
        return (
            f"{models}: {count(len(self.fitted), 'workload')} on "
            f"{count(len(gpu_types), 'GPU type')}"
        )

    def _facts(self) -> Mapping[str, str]:
        return {workload: ", ".join(gpus) for workload, gpus in self.fitted.items()}


def read_model(source: str | Path) -> PerformanceObject:
    """The performance object of a file that `optsched model fit` wrote, ``-`` for standard input.

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    return read_document(source, "model file", _performance_of)


def _performance_of(document: Any) -> PerformanceObject:
    if not isinstance(document, dict):
        raise InvalidInput("", show(document), f'an object with "format": "{FORMAT}"')
    if document.get("format") != FORMAT:
        raise InvalidInput("format", show(document.get("format")), f'"{FORMAT}"')
    del document["format"]
    return PerformanceObject(check_performance(document, ""))


def model_bytes(document: Mapping[str, Any]) -> bytes:
    """The file of a performance object;
    `read_model` returns an equal object, and equal objects give equal bytes.
    """
    return pretty_json({"format": FORMAT, **check_performance(document, "")}).encode()


def check_performance(document: Mapping[str, Any], path: str = "performance") -> dict[str, Any]:
    """A copy of a performance object; it must name its model and hold plain data."""
    return validate(PerformanceDocument, dict(document), path).model_dump()


class FittedModel(ABC):
    """A model that was fitted to measurements and can be stored.

    `document` returns plain data for an instance or a file; `from_document` makes an identical
    model from it.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Document]] = Document
    """The options of a fit."""

    @classmethod
    def read_options(cls, options: Mapping[str, Any]) -> Any:
        """The checked options of a fit; raises `InvalidInput` with paths below ``performance``."""
        return validate(cls.Options, dict(options), PERFORMANCE)

    @classmethod
    @abstractmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The model from a document (without the key ``model``);
        raises `InvalidInput` with paths below ``performance``.
        """

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """The whole model as JSON data, with its name under ``model``."""


WHOLE_STEPS = "whole_steps"
"""Option of every fitted model:
workloads that were measured in steps without samples, so that their batch is ignored.
"""


class WholeStepsDocument(Document):
    """The option that all fitted models have."""

    whole_steps: Tuple[Name] = ()


def split_whole_steps(options: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The workloads measured in whole steps, and the other options."""
    others = {name: value for name, value in options.items() if name != WHOLE_STEPS}
    given = {WHOLE_STEPS: options[WHOLE_STEPS]} if WHOLE_STEPS in options else {}
    return validate(WholeStepsDocument, given, PERFORMANCE).whole_steps, others


PERFORMANCE = "performance"
"""First key of the paths in errors of models."""


@contextmanager
def below(path: str) -> Iterator[None]:
    """Context: in errors of a model, replace the leading ``performance`` of the path by the path of
    its performance object (empty for a separate document).
    """
    try:
        yield
    except InvalidInput as error:
        if path == PERFORMANCE or not error.path.startswith(PERFORMANCE):
            raise
        where = (path + error.path[len(PERFORMANCE) :]).lstrip(".")
        raise InvalidInput(where, error.found, error.expected, error.file) from None
