"""Column generation: programs with more columns than can be written down."""

from optsched.solving.column_generation.column_generation import generate_columns
from optsched.solving.column_generation.configuration_generation import with_configurations
from optsched.solving.column_generation.configuration_pricing import Chosen, ConfigurationPricing
from optsched.solving.column_generation.pair_pricing import ClassPairs, PairPricing
from optsched.solving.column_generation.pair_search import with_pairs
from optsched.solving.column_generation.pricing import Duals

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
