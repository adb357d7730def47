"""Pass 4: the kernels of a softmax: the largest of its rows, and the shares that a product takes."""
