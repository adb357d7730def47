"""Values of custom calls."""
