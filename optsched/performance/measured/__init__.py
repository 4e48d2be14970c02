"""Models that repeat what was measured, and go between it."""
