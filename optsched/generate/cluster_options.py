"""Options of generated clusters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from optsched.generate.generator import (
    Conditions,
    GeneratorOptions,
    LargeCount,
    Share,
    refused,
    split,
)
from optsched.generate.job_sizes import Gangs, Median, Shape, Sigma
from optsched.generate.topologies import Topology


class ClusterOptions(GeneratorOptions):
    """Options of `cluster`."""

    only_if: ClassVar[Conditions] = {
        "kinds": ("rows is repeated", lambda given: given.rows == "repeated"),
        "sigma": ("durations is lognormal", lambda given: given.durations == "lognormal"),
        "shape": ("durations is pareto", lambda given: given.durations == "pareto"),
        "slack": ("deadlines is above 0", lambda given: given.deadlines > 0),
    }

    jobs: Annotated[LargeCount, Field(description="Jobs.")] = 1000
    pools: Annotated[
        int,
        Field(
            ge=1,
            le=16,
            description="Pools: V100, A100, H100, T4, P100, A100 80 GB, K80, and again.",
        ),
    ] = 4
    load: Annotated[
        float,
        Field(
            ge=0.01, le=1e4, allow_inf_nan=False,
            description="Capacity is made so scarce that the max-min level is at most 1/load of what every job can "
            "reach alone.",
        ),
    ] = 1.5  # fmt: skip
    rows: Annotated[
        Literal["distinct", "repeated"],
        Field(
            description="distinct: every job has rates of its own; repeated: there are as many rows as --kinds."
        ),
    ] = "distinct"
    kinds: Annotated[
        int,
        Field(ge=1, le=10_000, description="Different rows of repeated ones; every one occurs."),
    ] = 100
    durations: Annotated[
        Literal["lognormal", "pareto"],
        Field(description="Distribution of the hours of a job in its fastest pool."),
    ] = "lognormal"
    median: Median = 4.0
    sigma: Sigma = 1.2
    shape: Shape = 1.5
    gangs: Gangs = (0.1, 0.15, 0.05)
    elastic: Annotated[Share, Field(description="Share of jobs that take 1, 2, 4 or 8 GPUs.")] = 0.0
    weights: Annotated[
        tuple[Share, Share], split(2),
        Field(
            description="Shares of jobs with weight 2 and 4; the others have 1.",
            json_schema_extra={"metavar": "S,S"},
        ),
    ] = (0.15, 0.05)  # fmt: skip
    deadlines: Annotated[Share, Field(description="Share of jobs with a deadline.")] = 0.0
    slack: Annotated[
        float,
        Field(
            ge=0.1,
            le=1e6,
            allow_inf_nan=False,
            description="Time to a deadline over the hours in the fastest pool.",
        ),
    ] = 3.0
    tenants: Annotated[
        int,
        Field(
            ge=0, le=1000, description="Tenants; the k-th has jobs in proportion to 1/k. 0: none."
        ),
    ] = 0
    topology: Annotated[
        Topology,
        Field(
            description="tree: a leaf switch per pool; racks: racks of 8 nodes with leaf and spine switches; "
            "mixed-nodes: racks, and nodes of two sizes; none: no graph."
        ),
    ] = "none"
    unavailable: Annotated[
        float,
        Field(
            ge=0,
            le=0.5,
            allow_inf_nan=False,
            description="Share of nodes that are drained or down.",
        ),
    ] = 0.0
    colocation: Annotated[
        Share,
        Field(
            description="Share of the possible pairs of jobs (of kinds, if repeated) that may share a GPU."
        ),
    ] = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("gangs", "weights"):
            shares = getattr(self, name)
            if sum(shares) > 1 + 1e-9:
                raise refused(name, list(shares), "shares that add up to at most 1")
        if self.rows == "repeated" and self.kinds > self.jobs:
            raise refused("kinds", self.kinds, f"at most one per job, {self.jobs}")
        return self
