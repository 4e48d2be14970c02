"""Options that say how large generated jobs are, of whatever they are the jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from optsched.generate.generator import Share, split

Sigma = Annotated[
    float,
    Field(
        ge=0,
        le=5,
        allow_inf_nan=False,
        description="Standard deviation of the log of lognormal hours.",
    ),
]
Shape = Annotated[
    float,
    Field(
        gt=0.2,
        le=100,
        allow_inf_nan=False,
        description="Exponent of Pareto's tail; below 2 it is heavy.",
    ),
]
Median = Annotated[
    float, Field(gt=0, le=1e5, allow_inf_nan=False, description="Median of the hours.")
]
Gangs = Annotated[
    tuple[Share, Share, Share],
    split(3),
    Field(
        description="Shares of jobs with 2, 4 and 8 GPUs; the others have 1.",
        json_schema_extra={"metavar": "S,S,S"},
    ),
]
