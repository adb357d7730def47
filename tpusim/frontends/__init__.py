"""From what other front ends write, StableHLO and serialised HLO, to HLO text: XLA's own readers do it, of jaxlib."""
