"""Why ops take as long as they do: collectives, loops, waits, copies, the host, calls; hand-written kernels inside."""
