"""The catalogue of formulations: one file per formulation, found by optsched through one entry point."""

CATALOGUE: dict[str, str] = {
    "allox": "formulations.allox:Allox",
    "alpha-fairness": "formulations.alpha_fairness:AlphaFairness",
    "isolated": "formulations.isolated:Isolated",
    "lease": "formulations.lease:Lease",
    "makespan": "formulations.makespan:Makespan",
    "makespan-unrelated": "formulations.makespan_unrelated:MakespanUnrelated",
    "max-min-fairness": "formulations.max_min_fairness:MaxMinFairness",
    "max-throughput": "formulations.max_throughput:MaxThroughput",
    "multiple-choice": "formulations.multiple_choice:MultipleChoice",
    "partial-allocation": "formulations.partial_allocation:PartialAllocation",
    "proportional-fairness": "formulations.alpha_fairness:ProportionalFairness",
    "smd": "formulations.smd:Smd",
    "smd-tight": "formulations.smd:SmdTight",
    "sum-completion": "formulations.allox:Allox",
}
"""Registry name -> "module:Class"."""
