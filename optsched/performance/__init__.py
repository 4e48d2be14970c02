"""Performance models: they predict the throughput of jobs in configurations."""

from typing import TYPE_CHECKING

from optsched.instance.cluster import PoolSizes
from optsched.lazy import lazy_names
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import (
    ColocatingModel,
    Feasibility,
    JobBatch,
    LearningModel,
    ModelFactory,
    Observations,
    PairPrediction,
    PerformanceModel,
    Prediction,
    Source,
    learns,
    with_learnt,
)

CATALOGUE = {
    "amdahl": "optsched.performance.parametric.scaling:Amdahl",
    "analytic": "optsched.performance.analytic.model:AnalyticModel",
    "blend": "optsched.performance.learned.combined:Blend",
    "boosted": "optsched.performance.learned.boosted:Boosted",
    "cached": "optsched.performance.composed.cached:CachedModel",
    "chain": "optsched.performance.composed.chain:Chain",
    "conformal": "optsched.performance.learned.combined:Conformal",
    "cross-validated": "optsched.performance.learned.cross_validated:CrossValidated",
    "interference": "optsched.performance.composed.interference:Interference",
    "interpolation": "optsched.performance.interpolation:Interpolation",
    "noisy": "optsched.performance.composed.noisy:NoisyModel",
    "online": "optsched.performance.composed.online:OnlineModel",
    "oracle": "optsched.performance.composed.oracle:OracleModel",
    "pollux": "optsched.performance.parametric.pollux:Pollux",
    "prior": "optsched.performance.prior:Prior",
    "shared-link": "optsched.performance.parametric.shared_link:SharedLink",
    "table": "optsched.performance.table:TableModel",
    "usl": "optsched.performance.parametric.scaling:UniversalScalability",
}
"""Models by name, loaded on demand."""

if TYPE_CHECKING:
    from optsched.performance.analytic.hardware import partitions_of
    from optsched.performance.profiles import Profiles
    from optsched.performance.table import TableModel, reads_table

# Imported lazily, because these modules themselves import the protocol from this package
_HOME = {
    "Profiles": ".profiles",
    "TableModel": ".table",
    "partitions_of": ".analytic.hardware",
    "reads_table": ".table",
}
__getattr__ = lazy_names(__name__, _HOME)

__all__ = [
    "CATALOGUE",
    "ColocatingModel",
    "Configurations",
    "Feasibility",
    "JobBatch",
    "LearningModel",
    "ModelFactory",
    "Observations",
    "PairPrediction",
    "PerformanceModel",
    "PoolSizes",
    "Prediction",
    "Profiles",
    "Source",
    "TableModel",
    "learns",
    "partitions_of",
    "reads_table",
    "with_learnt",
]
