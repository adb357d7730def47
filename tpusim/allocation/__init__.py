"""Where values lie: liveness, forwarding, the heap, placement."""
