"""Decomposition: programs with more columns than can be written down."""

from optsched.decomposition.column_generation import generate_columns
from optsched.decomposition.configuration_columns import with_configurations
from optsched.decomposition.configuration_pricing import Chosen, ConfigurationPricing
from optsched.decomposition.duals import Duals
from optsched.decomposition.generated import Generated
from optsched.decomposition.master import with_pairs
from optsched.decomposition.pairs import Pairs
from optsched.decomposition.pricing import PairPricing

__all__ = [
    "Chosen",
    "ConfigurationPricing",
    "Duals",
    "Generated",
    "PairPricing",
    "Pairs",
    "generate_columns",
    "with_configurations",
    "with_pairs",
]
