"""Foreign files in and out: one module per format."""
