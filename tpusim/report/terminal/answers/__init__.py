"""Answers to questions about a run on a terminal."""
