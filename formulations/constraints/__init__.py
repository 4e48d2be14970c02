"""Side constraints that compose with every allocation formulation."""

CATALOGUE: dict[str, str] = {
    "deadlines": "formulations.constraints.deadlines:Deadlines",
}
"""Kind -> "module:Class"."""
