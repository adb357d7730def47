"""Element types and physical arrays as the kernels of values treat them."""
