"""Values of Pallas kernels: their bodies interpreted block by block, step by step of the grid."""
