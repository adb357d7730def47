"""What another compiler decided, undone."""
