"""Predictions beside measured times, and parameters fitted to them."""
