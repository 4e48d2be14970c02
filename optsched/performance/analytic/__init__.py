"""Performance from published facts, without measurements: datasheets, links, operation counts and
parallel plans.
"""
