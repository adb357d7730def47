"""How long a lowered program takes on a chip; the only room with a clock."""
