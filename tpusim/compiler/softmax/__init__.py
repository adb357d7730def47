"""Pass 4: the kernels of a softmax: first the shares that a product takes, then the largest of each row.

Both come before values are narrowed: it matters whether a program itself rounds the shares.
"""
