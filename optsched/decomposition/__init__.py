"""Decomposition: programs with more columns than can be written down."""

from optsched.decomposition.column_generation import Generated, generate_columns
from optsched.decomposition.duals import Duals
from optsched.decomposition.master import with_pairs
from optsched.decomposition.pairs import Pairs
from optsched.decomposition.pricing import PairPricing

__all__ = ["Duals", "Generated", "PairPricing", "Pairs", "generate_columns", "with_pairs"]
