"""Solving: a program goes in, a certified outcome comes out.

`Engine` runs programs on solvers within one budget of time. What is more than one run has a file of its own: `tangents`
(Newton's method), `stages` (requirements that give way, water filling), `column_generation`, `schedules`, `proof`.
"""
