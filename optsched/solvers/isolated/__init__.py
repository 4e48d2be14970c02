"""Solvers in their own process, which can be killed:
a hang or a crash costs one run and not the program.
"""

from optsched.processes import half_of_memory
from optsched.solvers.isolated.process import SolverProcess

__all__ = ["SolverProcess", "half_of_memory"]
