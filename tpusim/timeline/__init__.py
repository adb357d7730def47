"""What happened: intervals of every unit with their start and end, in picoseconds."""
