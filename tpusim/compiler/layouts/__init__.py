"""Pass 6: layouts."""
