"""Pass 7: which instructions become one kernel."""
