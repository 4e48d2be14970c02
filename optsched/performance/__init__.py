"""Performance models: where throughput coefficients come from."""

from optsched.performance.configurations import Configurations
from optsched.performance.protocol import (
    Feasibility,
    JobBatch,
    ModelFactory,
    Observations,
    PerformanceModel,
    Prediction,
    Source,
)
from optsched.performance.sizes import PoolSizes

CATALOGUE = {
    "boosted": "optsched.performance.learned.boosted:Boosted",
    "chain": "optsched.performance.chain:Chain",
    "table": "optsched.performance.table:TableModel",
}
"""Models by name, loaded on demand."""

__all__ = [
    "CATALOGUE",
    "Configurations",
    "Feasibility",
    "JobBatch",
    "ModelFactory",
    "Observations",
    "PerformanceModel",
    "PoolSizes",
    "Prediction",
    "Source",
]
