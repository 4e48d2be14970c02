#!/usr/bin/env python
"""One cluster, four objectives.

What you learn
--------------
- how to load an instance and solve it with any formulation;
- how objectives differ on the same cluster: the best total starves the slowest job, and the shortest makespan need
  not be fair;
- that every answer has a bound and a certificate.
"""

import numpy as np

import optsched

FORMULATIONS = ("max-min-fairness", "makespan", "max-throughput", "isolated")


def main() -> None:
    """Solve and compare."""
    instance = optsched.load("@quickstart")
    gpus = int(instance.cluster.gpus(instance.now).sum())
    print(
        f"{instance.name}: {len(instance.jobs)} jobs on {gpus} GPUs in {len(instance.cluster.pools)} pools\n"
    )

    print(
        f"{'formulation':<18}{'objective':>12}{'gap':>9}{'steps/s':>10}{'finish, h':>11}{'slowest job':>13}"
    )
    steps = instance.jobs_table.steps_left
    isolated = optsched.solve(instance, "isolated").allocation.throughput
    for name in FORMULATIONS:
        solution = optsched.solve(instance, name)
        assert solution.certificate.ok, solution.certificate.problems
        rate = solution.allocation.throughput
        with np.errstate(divide="ignore"):
            finish = float((steps / rate).max()) / 3600.0
        slowest = float((rate / isolated).min())  # against an equal slice of every pool
        gap = "-" if solution.gap is None else f"{solution.gap:.0e}"
        print(
            f"{name:<18}{solution.objective:>12.5g}{gap:>9}{rate.sum():>10.4g}{finish:>11.4g}{slowest:>12.2f}x"
        )

    print(
        "\nfinish: when the last job would end if all kept these rates (inf: some job gets nothing)"
    )
    print(
        "slowest job: the least that any job gets, against an equal slice of the cluster (isolated); below 1 in"
    )
    print(
        "max-min-fairness because that counts weights, and jobs of weight 2 and 4 get more at the others' expense"
    )


if __name__ == "__main__":
    main()
