"""Traces: jobs over time, as clusters recorded them or generators drew them."""

from optsched.traces.demand import Demand, demand_of
from optsched.traces.files import TraceSource, load_trace, trace_bytes
from optsched.traces.summary import TraceSummary, describe
from optsched.traces.trace import NodeEvents, Regimes, Trace

__all__ = [
    "Demand",
    "NodeEvents",
    "Regimes",
    "Trace",
    "TraceSource",
    "TraceSummary",
    "demand_of",
    "describe",
    "load_trace",
    "trace_bytes",
]
