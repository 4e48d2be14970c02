"""Models that are made of other models: chains, corrections, and wrappers for experiments."""

from optsched.performance.composed.base import MODELS, OF, ComposedModel, corrects, only_table, refuse_options, the_one
from optsched.performance.composed.chain import Chain

__all__ = ["MODELS", "OF", "Chain", "ComposedModel", "corrects", "only_table", "refuse_options", "the_one"]
