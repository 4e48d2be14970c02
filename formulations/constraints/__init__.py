"""Side constraints that compose with every allocation formulation."""

CATALOGUE: dict[str, str] = {
    "anti-affinity": "formulations.constraints.anti_affinity:AntiAffinity",
    "budget": "formulations.constraints.budget:Budget",
    "cells": "formulations.constraints.cells:Cells",
    "deadlines": "formulations.constraints.deadlines:Deadlines",
    "forbidden": "formulations.constraints.pinned:Forbidden",
    "minimum-service": "formulations.constraints.minimum_service:MinimumService",
    "minimum-share": "formulations.constraints.quota:MinimumShare",
    "minimum-throughput": "formulations.constraints.minimum_throughput:MinimumThroughput",
    "moves": "formulations.constraints.moves:Moves",
    "pinned": "formulations.constraints.pinned:Pinned",
    "placeable": "formulations.constraints.placeable:Placeable",
    "power": "formulations.constraints.power:Power",
    "quota": "formulations.constraints.quota:Quota",
    "uninterrupted": "formulations.constraints.uninterrupted:Uninterrupted",
}
"""Kind -> "module:Class"."""
