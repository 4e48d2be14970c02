"""Multi-dimensional and multiple-choice knapsacks."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from optsched.arrays import IntArray
from optsched.generate.generator import Generated, Generator, GeneratorOptions, SmallCount
from optsched.libraries import Knapsack


class KnapsackOptions(GeneratorOptions):
    jobs: SmallCount = Field(100, description="Jobs.")
    resources: int = Field(5, ge=1, le=1000, description="Resources.")
    tightness: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Capacity over what all jobs use; 1: all fit.",
    )
    choices: int = Field(
        1,
        ge=1,
        le=100,
        description="Options of a job, of which one runs at most; 1: the plain knapsack.",
    )


def draw(options: KnapsackOptions) -> tuple[IntArray, IntArray, IntArray]:
    """Uses r, shape (jobs, choices, resources); values u, shape (jobs, choices);
    capacities b, shape (resources,).

    With n jobs and K resources, as in P. C. Chu and J. E. Beasley 1998, A genetic algorithm for the
    multidimensional knapsack problem::

        r_jck ~ U{0..1000}
        b_k   = tightness * sum_j max_c r_jck           rounded down
        u_jc  = sum_k r_jck / K + 500 q_jc,  q ~ U(0, 1)   rounded; at least 1

    Values go with uses, which is what makes these hard. The authors have one choice, and tightness
    0.25, 0.5 and 0.75; their uses are in U(0, 1000). The largest of several choices keeps
    "tightness 1: everything fits" true.
    """
    random = options.random()
    K = options.resources
    r = random.integers(0, 1000, (options.jobs, options.choices, K), endpoint=True)
    # The slack undoes rounding of the product, which floor would make a whole unit.
    b = np.floor(options.tightness * r.max(axis=1).sum(axis=0) * (1 + 1e-12)).astype(np.int64)
    # A value of 0 would leave a job that nothing is gained by running
    u = np.maximum(np.round(r.sum(axis=2) / K + 500.0 * random.random(r.shape[:2])), 1.0).astype(
        np.int64
    )
    return r, u, b


def knapsack(options: KnapsackOptions) -> Generated:
    """Resources r0, r1, ... of the cluster;
    each job has options with what they use and what they are worth.
    """
    r, u, b = draw(options)
    choices = "" if options.choices == 1 else f"x{options.choices}"
    name = options.titled(f"knapsack-{options.jobs}{choices}-{options.resources}")
    return Generated(Knapsack(u, r, b).instance(name))


KNAPSACK = Generator(
    KnapsackOptions,
    knapsack,
    "Knapsacks with several resources, and several options per job if asked for.",
    lambda options: "multiple-choice",
)
