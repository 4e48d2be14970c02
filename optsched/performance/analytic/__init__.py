"""Performance from facts alone:
datasheets, links, operation counts and parallel plans, without any measurement.
"""
