"""The page of formulations and side constraints, made from their docstrings and options: ``python -m`` in ``docs``."""
