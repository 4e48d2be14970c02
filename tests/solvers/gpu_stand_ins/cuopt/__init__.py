"""In the place of cuOpt."""
