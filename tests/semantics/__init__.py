"""Does the program as given say the truth about itself? The oracle is the operation semantics."""
