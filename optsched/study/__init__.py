"""Studies of one instance:
many formulations side by side, one job explained, programs of others, models judged.
"""

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.study.admission import AdmissionDecision, Refusal, admit
    from optsched.study.comparison import Comparison, ComparisonRow, compare
    from optsched.study.direct import ProgramSolution, solve_program, verify_program
    from optsched.study.explaining import JobExplanation, explain_job, explanation
    from optsched.study.fitting import (
        evaluate_models,
        fit_model,
        fit_pairs,
        fits,
        predict_times,
        time_models,
    )

# Loaded when used: the parts of a study have little in common
__getattr__ = lazy_names(
    __name__,
    {
        "AdmissionDecision": ".admission",
        "Comparison": ".comparison",
        "ComparisonRow": ".comparison",
        "JobExplanation": ".explaining",
        "ProgramSolution": ".direct",
        "Refusal": ".admission",
        "admit": ".admission",
        "compare": ".comparison",
        "evaluate_models": ".fitting",
        "explain_job": ".explaining",
        "explanation": ".explaining",
        "fit_model": ".fitting",
        "fit_pairs": ".fitting",
        "fits": ".fitting",
        "predict_times": ".fitting",
        "solve_program": ".direct",
        "time_models": ".fitting",
        "verify_program": ".direct",
    },
)

__all__ = [
    "AdmissionDecision",
    "Comparison",
    "ComparisonRow",
    "JobExplanation",
    "ProgramSolution",
    "Refusal",
    "admit",
    "compare",
    "evaluate_models",
    "explain_job",
    "explanation",
    "fit_model",
    "fit_pairs",
    "fits",
    "predict_times",
    "solve_program",
    "time_models",
    "verify_program",
]
