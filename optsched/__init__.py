"""optsched: a mathematical-optimization scheduling engine for GPU clusters.

import optsched
instance = optsched.load("@quickstart")
solution = optsched.solve(instance, "max-min-fairness")
print(solution.objective, solution.certificate.ok)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.api import compile, load, place, realise, solve, write_model, write_solution
    from optsched.errors import (
        Interrupted,
        InvalidArgument,
        InvalidInput,
        JournalDamaged,
        JournalError,
        NoAllocation,
        OptschedError,
        ReplayDiffers,
        SolverCrashed,
        SolverUnavailable,
        UnsuitableSolver,
        UsageError,
        VerificationFailed,
        WrongValue,
    )
    from optsched.formats.pairs import read_pairs
    from optsched.formats.profiles import read_profiles
    from optsched.formulation import Formulation, SideConstraint
    from optsched.instance import Instance
    from optsched.instance.builder import InstanceBuilder
    from optsched.performance.concave import concave_envelope, envelope_gap
    from optsched.performance.loss_curve import fit_loss_curve
    from optsched.performance.parameter_server_fit import BottleneckLaw, fit_parameter_server
    from optsched.placement import Fragmentation, SlicedGpus, slices
    from optsched.rounds.plan import Plan
    from optsched.rounds.policy import RoundPolicy
    from optsched.rounds.recovery import replay
    from optsched.rounds.scheduler import Scheduler
    from optsched.rounds.solve_round import solve_round
    from optsched.rounds.state import RoundState
    from optsched.sensitivity import (
        CapacityCurve,
        CapacityRange,
        Front,
        WhatIf,
        capacity_curve,
        capacity_ranging,
        pareto,
        whatif,
    )
    from optsched.simulation.result import Simulation
    from optsched.simulation.simulate import simulate
    from optsched.solution import Solution
    from optsched.study.admission import AdmissionDecision, admit
    from optsched.study.comparison import Comparison, compare
    from optsched.study.direct import solve_program
    from optsched.study.explaining import explain_job
    from optsched.study.fitting import evaluate_models, fit_model, fit_pairs, predict_times
    from optsched.study.room import Room, fragmentation, make_room
    from optsched.traces import Trace, load_trace
    from optsched.verify import verify

__version__ = "0.1.0"

_HOME = {
    "AdmissionDecision": "optsched.study.admission",
    "BottleneckLaw": "optsched.performance.parameter_server_fit",
    "CapacityCurve": "optsched.sensitivity",
    "CapacityRange": "optsched.sensitivity",
    "Comparison": "optsched.study.comparison",
    "Formulation": "optsched.formulation",
    "Fragmentation": "optsched.placement",
    "Front": "optsched.sensitivity",
    "Instance": "optsched.instance",
    "InstanceBuilder": "optsched.instance.builder",
    "Interrupted": "optsched.errors",
    "InvalidArgument": "optsched.errors",
    "InvalidInput": "optsched.errors",
    "JournalDamaged": "optsched.errors",
    "JournalError": "optsched.errors",
    "NoAllocation": "optsched.errors",
    "OptschedError": "optsched.errors",
    "Plan": "optsched.rounds.plan",
    "ReplayDiffers": "optsched.errors",
    "Room": "optsched.study.room",
    "RoundPolicy": "optsched.rounds.policy",
    "RoundState": "optsched.rounds.state",
    "Scheduler": "optsched.rounds.scheduler",
    "SideConstraint": "optsched.formulation",
    "Simulation": "optsched.simulation.result",
    "SlicedGpus": "optsched.placement",
    "Solution": "optsched.solution",
    "SolverCrashed": "optsched.errors",
    "SolverUnavailable": "optsched.errors",
    "Trace": "optsched.traces",
    "UnsuitableSolver": "optsched.errors",
    "UsageError": "optsched.errors",
    "VerificationFailed": "optsched.errors",
    "WhatIf": "optsched.sensitivity",
    "WrongValue": "optsched.errors",
    "admit": "optsched.study.admission",
    "capacity_curve": "optsched.sensitivity",
    "capacity_ranging": "optsched.sensitivity",
    "compare": "optsched.study.comparison",
    "compile": "optsched.api",
    "concave_envelope": "optsched.performance.concave",
    "envelope_gap": "optsched.performance.concave",
    "evaluate_models": "optsched.study.fitting",
    "explain_job": "optsched.study.explaining",
    "fit_loss_curve": "optsched.performance.loss_curve",
    "fit_model": "optsched.study.fitting",
    "fit_pairs": "optsched.study.fitting",
    "fit_parameter_server": "optsched.performance.parameter_server_fit",
    "fragmentation": "optsched.study.room",
    "load": "optsched.api",
    "load_trace": "optsched.traces",
    "make_room": "optsched.study.room",
    "pareto": "optsched.sensitivity",
    "place": "optsched.api",
    "predict_times": "optsched.study.fitting",
    "read_pairs": "optsched.formats.pairs",
    "read_profiles": "optsched.formats.profiles",
    "realise": "optsched.api",
    "replay": "optsched.rounds.recovery",
    "simulate": "optsched.simulation.simulate",
    "slices": "optsched.placement",
    "solve": "optsched.api",
    "solve_program": "optsched.study.direct",
    "solve_round": "optsched.rounds.solve_round",
    "verify": "optsched.verify",
    "whatif": "optsched.sensitivity",
    "write_model": "optsched.api",
    "write_solution": "optsched.api",
}

__all__ = [
    "AdmissionDecision",
    "BottleneckLaw",
    "CapacityCurve",
    "CapacityRange",
    "Comparison",
    "Formulation",
    "Fragmentation",
    "Front",
    "Instance",
    "InstanceBuilder",
    "Interrupted",
    "InvalidArgument",
    "InvalidInput",
    "JournalDamaged",
    "JournalError",
    "NoAllocation",
    "OptschedError",
    "Plan",
    "ReplayDiffers",
    "Room",
    "RoundPolicy",
    "RoundState",
    "Scheduler",
    "SideConstraint",
    "Simulation",
    "SlicedGpus",
    "Solution",
    "SolverCrashed",
    "SolverUnavailable",
    "Trace",
    "UnsuitableSolver",
    "UsageError",
    "VerificationFailed",
    "WhatIf",
    "WrongValue",
    "__version__",
    "admit",
    "capacity_curve",
    "capacity_ranging",
    "compare",
    "compile",
    "concave_envelope",
    "envelope_gap",
    "evaluate_models",
    "explain_job",
    "fit_loss_curve",
    "fit_model",
    "fit_pairs",
    "fit_parameter_server",
    "fragmentation",
    "load",
    "load_trace",
    "make_room",
    "pareto",
    "place",
    "predict_times",
    "read_pairs",
    "read_profiles",
    "realise",
    "replay",
    "simulate",
    "slices",
    "solve",
    "solve_program",
    "solve_round",
    "verify",
    "whatif",
    "write_model",
    "write_solution",
]


__getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
