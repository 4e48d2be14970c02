"""Models that are made of other models: chains, corrections, and wrappers for experiments."""

from optsched.performance.composed.base import (
    MODELS,
    OF,
    ComposedModel,
    colocating,
    corrects,
    only_table,
    refuse_options,
    the_one,
)
from optsched.performance.composed.cached import CachedModel
from optsched.performance.composed.chain import Chain
from optsched.performance.composed.noisy import NoisyModel
from optsched.performance.composed.online import OnlineModel
from optsched.performance.composed.oracle import OracleModel

__all__ = [
    "MODELS",
    "OF",
    "CachedModel",
    "Chain",
    "ComposedModel",
    "NoisyModel",
    "OnlineModel",
    "OracleModel",
    "colocating",
    "corrects",
    "only_table",
    "refuse_options",
    "the_one",
]
