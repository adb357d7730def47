"""The bytes of a Pallas kernel to a noun of ``ir``."""
