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
    "amdahl": "optsched.performance.parametric.scaling:Amdahl",
    "chain": "optsched.performance.chain:Chain",
    "interpolation": "optsched.performance.measured.interpolation:Interpolation",
    "pollux": "optsched.performance.parametric.pollux:Pollux",
    "shared-link": "optsched.performance.parametric.shared_link:SharedLink",
    "table": "optsched.performance.table:TableModel",
    "usl": "optsched.performance.parametric.scaling:UniversalScalability",
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
