"""The conformance suite of solvers:
what a back-end must do, as cases that anybody can run on an own one.

from optsched.conformance import check_solver
for result in check_solver(MySolver):
    print(result.case, result.verdict, result.reason)
"""

from optsched.conformance.case import (
    Case,
    CaseVerdict,
    Failed,
    Result,
    Skipped,
    Subject,
    case,
    expect,
    expect_close,
)
from optsched.conformance.run import BANKS, check_case, check_solver, checks, summary

__all__ = [
    "BANKS",
    "Case",
    "CaseVerdict",
    "Failed",
    "Result",
    "Skipped",
    "Subject",
    "case",
    "check_case",
    "check_solver",
    "checks",
    "expect",
    "expect_close",
    "summary",
]
