"""Pass 2: the same in fewer instructions."""
