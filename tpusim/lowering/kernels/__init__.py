"""From a fusion or a single instruction to the tile loop of a kernel."""
