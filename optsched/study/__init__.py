"""Around one answer: formulations compared, one job explained, programs of no formulation, models fitted and judged."""
