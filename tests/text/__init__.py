"""Does the text round-trip; does bad text end in an error with line, column and caret? The oracle is XLA's parser."""
