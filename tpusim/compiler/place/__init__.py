"""Pass 10: which arrays live in fast memory, and the copies that bring them there."""
