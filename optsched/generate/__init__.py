"""Seeded generators of instances from published facts: GPU datasheets, constants of papers, closed-form rates.

The way from options to an instance is the same for all: `catalogue.generate` checks the options of a `Generator`, whose
function draws numbers from the seed and returns `Generated`, an instance with notes about it.
"""
