"""The HLO program as given: modules, computations, instructions and their attributes, as frozen data."""
