"""How the rounds of a scheduler are decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from optsched.assembly import constraint_document
from optsched.display import LINE, shortened
from optsched.errors import InvalidInput
from optsched.instance.documents import (
    Count,
    Delay,
    Document,
    NonNegative,
    Positive,
    PositiveCount,
    Seconds,
    Tuple,
    changed_fields,
)
from optsched.instance.reading import show, validate
from optsched.ranking import Ranking, RankingOptions
from optsched.registry import load_ranking, names

# The units of fields; `optsched round` reads its options by these names.
Bytes = Positive
Rounds = NonNegative

FORMER_NAMES = {"fifo": "fcfs"}
"""Rankings in stored policies -> their present names: ``fifo`` is only the formulation now."""
MOVES = "moves"
"""The option of rankings that stored policies may be too old to have."""


def _documents(given: Any) -> Any:
    return [*map(constraint_document, given)] if isinstance(given, list | tuple) else given


AS_FOR_SOLVE = BeforeValidator(_documents)
"""Side constraints may be given as for `optsched.solve`: documents, kinds, or themselves."""


class RoundPolicy(Document):
    """How rounds are decided; the object "policy" of a round's state.

    Attributes
    ----------
    formulation : str
        Registry name of the formulation whose allocation the rounds follow.
    options : mapping
        Options of the formulation, or of the ranking.
    ranking : str, optional
        Registry name of a ranking (``fcfs``, ``srtf``, ...): jobs run in its order, and no program
        is solved. Its name and options are checked when the policy is made.
    constraints : tuple of mappings
        Side constraints beside those of the instance (`optsched.assembly.constraints_in_force`).
        They may be given as for `optsched.solve`, such as ``"placeable"``.
    solver : str
        Name of the solver: see `optsched solvers`.
    time_limit : float
        Time of the solver in a round; then the plan falls back. Seconds, or text such as ``5m``.
    work_limit : int, optional
        Stop after N iterations, nodes or conflicts; unlike a time limit, reproducible.
    gap : float, optional
        Relative gap at which an integer program may stop.
    threads : int
        Threads of the solver; 0: all cores.
    seed : int
        Seed of the solver.
    memory_limit : float, optional
        Memory of the solver's process above its imports, such as 4GB; by default half of the
        machine's. In bytes (Linux); half of the memory is
        `optsched.solvers.isolated.half_of_memory`.
    hysteresis : float
        Rounds that a waiting job must be owed more than a running job before it takes its GPUs. To
        this the restart cost of the running job is added. With an allocation that stays the same,
        on single GPUs, the time that a job has received falls behind what it is owed by less than
        1.5 + hysteresis rounds where this is 0.5 or less, and by a bounded number of rounds where
        it is more (3 measured at 2). What is left over comes on top, without a bound.
    max_moves : int, optional
        Running jobs that a plan preempts or moves at most: to follow its allocation, to make room,
        or for faster idle GPUs. Jobs that have to leave their nodes or have ended do not count.
    moves_per_hour : int, optional
        Running jobs that plans preempt or move within any hour at most. All count, but only those
        that would go for the allocation are held back.
    patience : int, optional
        Rounds after which a waiting job goes before all others. It goes before those that can be
        stopped, even if the allocation gives it nothing: with k jobs that have waited longer, it
        runs at the latest k rounds after that.
    exempt_time : float
        Time after each start in which no job is preempted; a job may state more. Seconds, or text
        such as ``10m``. Until then a job runs on as one that cannot be preempted.
    grace_time : float
        Time for which a job that is preempted or moved keeps its GPUs, to save its state. Seconds,
        or text such as ``30s``. Others may be given these GPUs at once, and begin on them then.
    checkpoint_interval : float
        Time between two checkpoints of jobs that state none of their own. Seconds, or text; 0: they
        save their state when they are stopped.
    progress : bool
        Whether jobs that run are assumed to make the steps that their throughput says, until they
        are observed. A job is never assumed to be done: until it is said to be complete, it has a
        round of work left.
    fill : bool, optional
        Whether jobs without a claim run on GPUs that are left over. By default they do, unless the
        formulation's objective is money or a schedule. A strict ranking keeps them idle for those
        that wait.
    """

    formulation: str = "max-min-fairness"
    options: Mapping[str, Any] = Field(default_factory=dict)
    ranking: str | None = None
    constraints: Annotated[Tuple[dict[str, Any]], AS_FOR_SOLVE] = ()
    solver: str = "auto"
    time_limit: Seconds = 10.0
    work_limit: PositiveCount | None = None
    gap: NonNegative | None = None
    threads: Count = 1
    seed: Count = 0
    memory_limit: Bytes | None = None
    hysteresis: Rounds = 2.0
    max_moves: Count | None = None
    moves_per_hour: Count | None = None
    patience: PositiveCount | None = None
    exempt_time: Delay = 0.0
    grace_time: Delay = 0.0
    checkpoint_interval: Delay = 0.0
    progress: bool = True
    fill: bool | None = None

    def __repr__(self) -> str:
        stated = changed_fields(self) or [f"formulation={self.formulation}"]
        return shortened(f"<RoundPolicy {', '.join(stated)}", LINE - 1) + ">"

    @field_validator("ranking")
    @classmethod
    def _present_name(cls, ranking: str | None) -> str | None:
        return None if ranking is None else _present(ranking)

    @model_validator(mode="after")
    def _one_of_them(self) -> RoundPolicy:
        # The formulation has a default: only one that is written conflicts with a ranking.
        if self.ranking is not None and "formulation" in self.model_fields_set:
            raise ValueError("a formulation or a ranking, not both")
        if self.ranking is not None and self.made_ranking().strict and self.fill:
            raise ValueError(
                "a strict ranking or fill, not both: strict jobs keep those behind them waiting"
            )
        return self

    def made_ranking(self) -> Ranking:
        """The ranking with its options;
        raises `UsageError` where there is no such ranking or option.
        """
        assert self.ranking is not None
        return load_ranking(self.ranking)(self.options)


def _present(ranking: str) -> str:
    return (
        FORMER_NAMES[ranking]
        if ranking in FORMER_NAMES and ranking not in names("ranking")
        else ranking
    )


def policy_of(policy: RoundPolicy | Mapping[str, Any]) -> RoundPolicy:
    """A policy, or one from its document; raises `InvalidInput` or `UsageError`."""
    if isinstance(policy, RoundPolicy):
        return policy
    if not isinstance(policy, Mapping):
        raise InvalidInput(
            "policy",
            show(policy),
            'an object such as {"formulation": "max-min-fairness"}',
        )
    return validate(RoundPolicy, dict(policy), "policy")


def policy_document(policy: RoundPolicy) -> dict[str, Any]:
    """A policy as states and journals keep it.

    ``moves`` of a ranking is always among its options, as states of before that option was
    there lack it.
    """
    document = policy.model_dump(mode="json", exclude_unset=True)
    if policy.ranking is not None and _takes_moves(policy.ranking):
        document["options"] = {
            **document.get("options", {}),
            MOVES: policy.made_ranking().options.moves,
        }
    return document


def as_stored(document: Any) -> Any:
    """The document of a policy that a state or a journal has kept.

    Where it lacks ``moves``, it was kept before rankings had that option, and plans were those of
    ``published``. What is no policy is given back as it is, for its reader to refuse.
    """
    if (
        not isinstance(document, Mapping)
        or "formulation" in document
        or not isinstance(document.get("ranking"), str)
    ):
        return document
    ranking = _present(document["ranking"])
    options = document.get("options", {})
    if not isinstance(options, Mapping) or MOVES in options:
        return document
    if ranking not in names("ranking") or not _takes_moves(ranking):
        return document
    # Plans of such states are made again as they were made then.
    return {**document, "options": {**options, MOVES: "published"}}


def _takes_moves(ranking: str) -> bool:
    """Whether a ranking has the options of all rankings of the catalogue;
    those of a plug-in may be its own alone.
    """
    return issubclass(load_ranking(ranking).Options, RankingOptions)
