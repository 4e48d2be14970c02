"""The ``chain`` model: each cell comes from the first model that has an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from optsched.arrays import IntArray
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import Document
from optsched.instance.reading import validate
from optsched.performance.composed.base import (
    MODELS,
    ComposedModel,
    corrects,
    only_table,
    per_workload,
)
from optsched.performance.configurations import Configurations
from optsched.performance.files import PERFORMANCE
from optsched.performance.protocol import (
    Feasibility,
    JobBatch,
    Observations,
    PerformanceModel,
    Prediction,
    with_learnt,
)
from optsched.performance.table import TableModel


class Chain(ComposedModel):
    """Models in order: each is asked for the cells that the models before it do not know.

    The answer that a configuration cannot run (zero rate, out of memory) is final. Rates that the
    instance states always come first, as with every model.

    Options: ``models``, a list of performance objects, best first.
    """

    name = "chain"
    made_of = MODELS

    def __init__(self, models: Sequence[PerformanceModel]) -> None:
        self.models = tuple(models)
        self.per_workload = all(per_workload(model) for model in models)

    @property
    def parts(self) -> tuple[PerformanceModel, ...]:
        """The models, best first."""
        return self.models

    @property
    def version(self) -> int:
        """Grows with the version of any part."""
        return sum(model.version for model in self.models)

    @classmethod
    def after_table(cls, instance: Instance, model: PerformanceModel) -> PerformanceModel:
        """A model with the stated rates of the instance first, then those of another model."""
        # A model that corrects stated rates must not come after them.
        knows_table = only_table(model) or corrects(model)
        return model if knows_table else AfterTable([TableModel(instance.rates, instance), model])

    @classmethod
    def from_parts(
        cls,
        instance: Instance,
        options: Mapping[str, Any],
        parts: Sequence[PerformanceModel],
    ) -> Self:
        """A chain of models; takes no options beside them."""
        validate(Document, options, PERFORMANCE)
        if not parts:
            raise InvalidInput("performance.models", "an empty list", "models, best first")
        return cls(parts)

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        first, *others = self.models
        predicted = Prediction.unknown(len(job))
        # Most cells belong to the first model, so copy all of them at once.
        predicted.put(slice(None), first.predict(jobs, configurations, edges=(job, configuration)))
        for model in others:
            # A zero rate and too little memory are answers; only `NO_RATE` cells go to the next
            # model.
            unknown = np.flatnonzero(predicted.feasible == Feasibility.NO_RATE)
            if len(unknown) == 0:
                break
            edges = (job[unknown], configuration[unknown])
            predicted.put(unknown, model.predict(jobs, configurations, edges=edges))
        return predicted

    def observe(self, observations: Observations) -> set[int]:
        """Pass the measurements to every part."""
        return set[int]().union(*(model.observe(observations) for model in self.models))


class AfterTable(Chain):
    """Stated rates of the instance, then a model. It has no performance object of its own; it is
    added inside every correcting model.
    """

    def with_learnt(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """`optsched.performance.LearningModel`: the object of the inner model."""
        return with_learnt(self.models[1], document)
