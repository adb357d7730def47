"""Host memory: what lies there, and the copies to it and from it."""
