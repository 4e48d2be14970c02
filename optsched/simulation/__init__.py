"""Trace-driven simulation: completion times, fairness, cost and energy of a policy before it is
used on a real cluster.
"""

from optsched.simulation.files import read_simulation, simulation_bytes
from optsched.simulation.options import SimulationOptions
from optsched.simulation.recording import JobLog, RoundLog, Segments
from optsched.simulation.result import Simulation
from optsched.simulation.simulate import simulate

__all__ = [
    "JobLog",
    "RoundLog",
    "Segments",
    "Simulation",
    "SimulationOptions",
    "read_simulation",
    "simulate",
    "simulation_bytes",
]
