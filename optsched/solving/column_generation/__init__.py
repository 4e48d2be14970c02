"""Decomposition: programs with more columns than can be written down."""

from optsched.solving.column_generation.column_generation import generate_columns
from optsched.solving.column_generation.configuration_columns import with_configurations
from optsched.solving.column_generation.configuration_pricing import Chosen, ConfigurationPricing
from optsched.solving.column_generation.duals import Duals
from optsched.solving.column_generation.master import with_pairs
from optsched.solving.column_generation.pairs import ClassPairs
from optsched.solving.column_generation.pricing import PairPricing

__all__ = [
    "Chosen",
    "ClassPairs",
    "ConfigurationPricing",
    "Duals",
    "PairPricing",
    "generate_columns",
    "with_configurations",
    "with_pairs",
]
