"""Pallas kernels: from the body that Mosaic is handed to a kernel whose tiles are the steps of its grid."""
