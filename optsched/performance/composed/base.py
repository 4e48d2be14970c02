"""Models that are made of other models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from optsched.arrays import IntArray
from optsched.instance import Instance
from optsched.instance.documents import Document
from optsched.instance.reading import validate
from optsched.performance.configurations import Configurations
from optsched.performance.files import PERFORMANCE, WHOLE_STEPS
from optsched.performance.protocol import (
    ColocatingModel,
    JobBatch,
    Observations,
    PerformanceModel,
    Prediction,
    RateModel,
    with_learnt,
)
from optsched.performance.table import TableModel

MODELS, OF = "models", "of"
"""Options that hold performance objects: a list of them, or one."""


def whole_steps_of(document: Mapping[str, Any]) -> set[str]:
    """Workloads measured in whole steps, in a fitted model or in any part of a composed one."""
    listed = document.get(MODELS)
    parts = [*(listed if isinstance(listed, list | tuple) else ()), document.get(OF)]
    # Invalid performance objects are refused when the model is made
    inside = {name for part in parts if isinstance(part, Mapping) for name in whole_steps_of(part)}
    return inside | set(document.get(WHOLE_STEPS, ()))


class ComposedModel(RateModel):
    """A performance model made of other models, which its option `made_of` contains: `MODELS` or
    `OF`.

    `optsched.assembly.make_model` makes the parts first.
    """

    made_of: ClassVar[str] = OF
    """The option that holds its parts:
    `OF`, one performance object, or `MODELS`, a list of them.
    """
    corrects: bool = False
    """Whether it also predicts rates that the instance states; its parts then include the stated
    rates.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in the registry of models."""

    @property
    @abstractmethod
    def parts(self) -> tuple[PerformanceModel, ...]:
        """The models that it is made of."""

    @classmethod
    @abstractmethod
    def from_parts(
        cls,
        instance: Instance,
        options: Mapping[str, Any],
        parts: Sequence[PerformanceModel],
    ) -> Self:
        """Make the model from its parts and its other options;
        raises `InvalidInput` with paths below ``performance``.
        """

    def with_learnt(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """`optsched.performance.LearningModel`: what the parts have learnt."""
        options = document[self.made_of]
        if self.made_of == OF:
            (part,) = self.parts
            return {**document, OF: with_learnt(part, options)}
        return {
            **document,
            MODELS: [
                with_learnt(part, learnt) for part, learnt in zip(self.parts, options, strict=True)
            ],
        }


def corrects(model: PerformanceModel) -> bool:
    """Whether a model also predicts rates that the instance states."""
    return bool(getattr(model, "corrects", False))


def knows_levels(model: PerformanceModel) -> bool:
    """Whether a model, or a part of it, distinguishes levels of the topology."""
    parts = model.parts if isinstance(model, ComposedModel) else ()
    return bool(getattr(model, "knows_levels", False)) or any(map(knows_levels, parts))


def per_workload(model: PerformanceModel) -> bool:
    """Whether a model reads only the workload of a job."""
    return bool(getattr(model, "per_workload", False))


class WrappedModel(ComposedModel):
    """A model around one other model; by default it passes on that model's version, rates and
    measurements.
    """

    Options: ClassVar[type[Document]] = Document
    """The options beside ``of``."""

    def __init__(self, instance: Instance, of: PerformanceModel, options: Any = None) -> None:
        self.of = of
        self.per_workload = per_workload(of)

    @classmethod
    def from_parts(
        cls,
        instance: Instance,
        options: Mapping[str, Any],
        parts: Sequence[PerformanceModel],
    ) -> Self:
        (of,) = parts
        return cls(instance, of, validate(cls.Options, options, PERFORMANCE))

    @property
    def parts(self) -> tuple[PerformanceModel, ...]:
        return (self.of,)

    @property
    def version(self) -> int:
        """Version of the inner model."""
        return self.of.version

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        """Rates of the inner model."""
        return self.of.predict(jobs, configurations, edges=(job, configuration))

    def observe(self, observations: Observations) -> set[int]:
        """Pass the measurements to the inner model."""
        return self.of.observe(observations)


def colocating(model: PerformanceModel) -> ColocatingModel | None:
    """The model itself or its first part that predicts pairs of jobs on the same GPUs; None if
    there is none.
    """
    # isinstance with a protocol compares all attributes, which takes 20 us of every compile.
    if hasattr(model, "pair_fractions"):
        return cast("ColocatingModel", model)
    # The first one in the order of the parts, like in a chain.
    parts = model.parts if isinstance(model, ComposedModel) else ()
    return next((found for found in map(colocating, parts) if found is not None), None)


def only_table(model: PerformanceModel) -> bool:
    """Whether a model has only the rates that the instance states."""
    if isinstance(model, ComposedModel):
        return all(only_table(part) for part in model.parts)
    return isinstance(model, TableModel)
