"""The conformance suite of solvers:
what a back-end must do, as cases that anybody can run on an own one.

from optsched.conformance import check_solver
for result in check_solver(MySolver):
    print(result.case, result.verdict, result.reason)
"""

from optsched.conformance.case import (
    Case,
    Failed,
    Result,
    Skipped,
    Subject,
    Verdict,
    case,
    expect,
    expect_close,
)
from optsched.conformance.run import BANKS, check_case, check_solver, checks, summary

__all__ = [
    "BANKS",
    "Case",
    "Failed",
    "Result",
    "Skipped",
    "Subject",
    "Verdict",
    "case",
    "check_case",
    "check_solver",
    "checks",
    "expect",
    "expect_close",
    "summary",
]
