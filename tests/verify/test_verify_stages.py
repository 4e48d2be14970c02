"""Stages of a water filling in a file: what they keep is checked."""

from __future__ import annotations

import optsched


def test_the_rules_of_a_filling_are_known_ones() -> None:
    solution = optsched.solve("@quickstart", "water-filling", constraints=["deadlines"])
    document = solution.to_document()
    assert optsched.verify("@quickstart", document).ok
    for stage in document["stages"]:
        stage["kept"]["closes"] = [11.0]
    verification = optsched.verify("@quickstart", document)
    named = [item.field for item in verification.findings]
    assert named[0] == "stages[0].kept.closes"


def test_a_stage_lowers_levels_by_rounding_only() -> None:
    document = optsched.solve("@quickstart", "water-filling", solver="prices").to_document()
    document["stages"][0]["kept"]["met"] = [1.0 - 1e-12]
    assert optsched.verify("@quickstart", document).ok
    document["stages"][0]["kept"]["met"] = [0.99]
    verification = optsched.verify("@quickstart", document)
    assert next(item.field for item in verification.findings) == "stages[0]"
