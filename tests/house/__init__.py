"""The rules of the house as tests: budgets, docstrings, imports, start-up time."""
