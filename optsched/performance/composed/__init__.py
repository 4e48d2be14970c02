"""Models that are made of other models: chains, corrections, and wrappers for experiments."""

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names
from optsched.performance.composed.base import (
    MODELS,
    OF,
    ComposedModel,
    colocating,
    corrects,
    knows_levels,
    only_table,
    whole_steps_of,
)

if TYPE_CHECKING:
    from optsched.performance.composed.cached import CachedModel
    from optsched.performance.composed.chain import Chain
    from optsched.performance.composed.noisy import NoisyModel
    from optsched.performance.composed.online import OnlineModel
    from optsched.performance.composed.oracle import OracleModel

# Loaded when used: most instances name one plain model.
_HOME = {
    "CachedModel": ".cached",
    "Chain": ".chain",
    "NoisyModel": ".noisy",
    "OnlineModel": ".online",
    "OracleModel": ".oracle",
}

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
    "knows_levels",
    "only_table",
    "whole_steps_of",
]

__getattr__ = lazy_names(__name__, _HOME)
