"""From fractions of time to rounds, and from rounds to GPUs on nodes."""
