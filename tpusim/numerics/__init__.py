"""The values of tensors, computed as a TPU would; kernels are compiled by Numba."""
