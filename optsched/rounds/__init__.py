"""Rounds: plans for a batch scheduler that asks again and again, and what it keeps in between."""
