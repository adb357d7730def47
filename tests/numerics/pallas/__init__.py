"""Values of Pallas kernels."""
