"""Policies that only rank jobs: one file per ranking, found by optsched through one entry point."""

CATALOGUE: dict[str, str] = {
    "2d-las": "formulations.rankings.las_2d:LeastAttainedGpuTime",
    "earliest-deadline-first": "formulations.rankings.edf:EarliestDeadlineFirst",
    "edf": "formulations.rankings.edf:EarliestDeadlineFirst",
    "fcfs": "formulations.rankings.fcfs:FirstComeFirstServed",
    "first-come-first-served": "formulations.rankings.fcfs:FirstComeFirstServed",
    "gittins": "formulations.rankings.gittins:GittinsIndex",
    "las": "formulations.rankings.las:LeastAttainedService",
    "least-attained-service": "formulations.rankings.las:LeastAttainedService",
    "least-slack-first": "formulations.rankings.slack_first:SlackFirst",
    "priority": "formulations.rankings.priority:Priority",
    "shortest-remaining-time": "formulations.rankings.srtf:ShortestRemainingTime",
    "slack-first": "formulations.rankings.slack_first:SlackFirst",
    "srtf": "formulations.rankings.srtf:ShortestRemainingTime",
    "tiresias": "formulations.rankings.tiresias:Tiresias",
}
"""Registry name -> "module:Class"."""
