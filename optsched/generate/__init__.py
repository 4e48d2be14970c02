"""Seeded generators of instances from published facts: GPU datasheets, constants of papers, closed-form rates."""
