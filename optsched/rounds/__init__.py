"""What a batch scheduler asks for round after round, and what it keeps in between."""
