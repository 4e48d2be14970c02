"""Policies that only rank jobs: one file per ranking, found by optsched through one entry point."""

CATALOGUE: dict[str, str] = {
    "fifo": "formulations.rankings.fifo:Fifo",
    "shortest-remaining-time": "formulations.rankings.srtf:ShortestRemainingTime",
    "srtf": "formulations.rankings.srtf:ShortestRemainingTime",
}
"""Registry name -> "module:Class"."""
