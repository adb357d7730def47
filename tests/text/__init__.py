"""Does a shape say the truth about itself? Every formula and example of XLA's two documents on layout."""
