"""Traces: jobs over time, as clusters recorded them or generators drew them."""

from optsched.traces.documents import trace_schema
from optsched.traces.files import load_trace, trace_bytes
from optsched.traces.trace import NodeEvents, Regimes, Trace

__all__ = ["NodeEvents", "Regimes", "Trace", "load_trace", "trace_bytes", "trace_schema"]
