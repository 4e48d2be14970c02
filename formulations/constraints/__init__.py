"""Side constraints that compose with every allocation formulation."""

CATALOGUE: dict[str, str] = {
    "anti-affinity": "formulations.constraints.anti_affinity:AntiAffinity",
    "deadlines": "formulations.constraints.deadlines:Deadlines",
}
"""Kind -> "module:Class"."""
