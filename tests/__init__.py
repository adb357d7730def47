"""The tests of tpusim; README.md beside this file says which test goes where."""
