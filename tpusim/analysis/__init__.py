"""From a timeline to frozen numbers: utilisation, bounds, memory, the critical path."""
