"""Attributes of instructions: how each is read and printed."""
