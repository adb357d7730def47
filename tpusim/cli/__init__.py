"""The command line: options in, calls of the pipeline out."""
