"""What must not matter does not: relations between a program and the same one in another dress."""
