"""Pictures of one kernel: the ways to cut it, and the grid of one that was written by hand."""
