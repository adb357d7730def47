"""Energy and power of runs, and what they cost to rent."""
