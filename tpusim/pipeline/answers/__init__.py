"""Answers that take more than one run: why an op takes as long as it does, and what another order would change."""
