"""The rules, one file each; each enters itself into the table of ``advice/trials.py``."""
