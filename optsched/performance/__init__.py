"""Performance models: where throughput coefficients come from."""

from optsched.performance.configurations import Configurations
from optsched.performance.protocol import (
    ColocatingModel,
    Feasibility,
    JobBatch,
    ModelFactory,
    Observations,
    PairPrediction,
    PerformanceModel,
    Prediction,
    Source,
)
from optsched.performance.sizes import PoolSizes

CATALOGUE = {
    "boosted": "optsched.performance.learned.boosted:Boosted",
    "chain": "optsched.performance.chain:Chain",
    "conformal": "optsched.performance.learned.conformal_times:Conformal",
    "interference": "optsched.performance.interference:Interference",
    "table": "optsched.performance.table:TableModel",
}
"""Models by name, loaded on demand."""

__all__ = [
    "CATALOGUE",
    "ColocatingModel",
    "Configurations",
    "Feasibility",
    "JobBatch",
    "ModelFactory",
    "Observations",
    "PairPrediction",
    "PerformanceModel",
    "PoolSizes",
    "Prediction",
    "Source",
]
