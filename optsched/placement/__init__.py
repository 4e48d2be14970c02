"""From fractions of time to rounds, and from rounds to GPUs on nodes."""

from optsched.placement.check import Problem, check_rounds
from optsched.placement.instant import Instant
from optsched.placement.priority import next_round
from optsched.placement.realisation import METHODS, realise

__all__ = ["METHODS", "Instant", "Problem", "check_rounds", "next_round", "realise"]
