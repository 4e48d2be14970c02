"""Rounds: plans for a batch scheduler that asks again and again, and what it keeps in between.

`solve_round` is in the module of its name, the journal in `optsched.rounds.journal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.rounds.allocation import check_policy
    from optsched.rounds.changes import advanced
    from optsched.rounds.ledger import Setup
    from optsched.rounds.plan import Action, Decision, Plan, Verdict
    from optsched.rounds.policy import RoundPolicy
    from optsched.rounds.recovery import Replayed, replay
    from optsched.rounds.scheduler import Scheduler
    from optsched.rounds.state import Reservation, RoundState, state_of
    from optsched.rounds.transitions import followed
    from optsched.rounds.watching import Watcher

_HOME = {
    "Action": ".plan",
    "Decision": ".plan",
    "Plan": ".plan",
    "Replayed": ".recovery",
    "Reservation": ".state",
    "RoundPolicy": ".policy",
    "RoundState": ".state",
    "Scheduler": ".scheduler",
    "Setup": ".ledger",
    "Verdict": ".plan",
    "Watcher": ".watching",
    "advanced": ".changes",
    "check_policy": ".allocation",
    "followed": ".transitions",
    "replay": ".recovery",
    "state_of": ".state",
}

__all__ = [
    "Action",
    "Decision",
    "Plan",
    "Replayed",
    "Reservation",
    "RoundPolicy",
    "RoundState",
    "Scheduler",
    "Setup",
    "Verdict",
    "Watcher",
    "advanced",
    "check_policy",
    "followed",
    "replay",
    "state_of",
]

__getattr__ = lazy_names(__name__, _HOME)
