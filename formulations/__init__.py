"""The catalogue of formulations:
one file per formulation, found by optsched through one entry point.
"""

CATALOGUE: dict[str, str] = {
    "allox": "formulations.allox:Allox",
    "alpha-fairness": "formulations.alpha_fairness:AlphaFairness",
    "cost": "formulations.total_cost:TotalCost",
    "deadline-elastic": "formulations.deadline_elastic:DeadlineElastic",
    "deadline-fluid": "formulations.deadline_fluid:DeadlineFluid",
    "dominant-resource-fairness": "formulations.drf:DominantResourceFairness",
    "drf": "formulations.drf:DominantResourceFairness",
    "elasticflow": "formulations.elasticflow:ElasticFlow",
    "fifo": "formulations.fifo:Fifo",
    "finish-time-fairness": "formulations.finish_time_fairness:FinishTimeFairness",
    "gandiva": "formulations.gandiva:Gandiva",
    "isolated": "formulations.isolated:Isolated",
    "lease": "formulations.lease:Lease",
    "lexicographic-max-min": "formulations.water_filling:WaterFilling",
    "makespan": "formulations.makespan:Makespan",
    "makespan-unrelated": "formulations.makespan_unrelated:MakespanUnrelated",
    "matching": "formulations.gandiva:Matching",
    "max-min-fairness": "formulations.max_min_fairness:MaxMinFairness",
    "max-throughput": "formulations.max_throughput:MaxThroughput",
    "multiple-choice": "formulations.multiple_choice:MultipleChoice",
    "partial-allocation": "formulations.partial_allocation:PartialAllocation",
    "proportional-fairness": "formulations.alpha_fairness:ProportionalFairness",
    "proportional-shares": "formulations.proportional_shares:ProportionalShares",
    "smd": "formulations.smd:Smd",
    "smd-tight": "formulations.smd:SmdTight",
    "sum-completion": "formulations.allox:Allox",
    "themis": "formulations.finish_time_fairness:FinishTimeFairness",
    "throughput-per-cost": "formulations.throughput_per_cost:ThroughputPerCost",
    "water-filling": "formulations.water_filling:WaterFilling",
}
"""Registry name -> "module:Class"."""
