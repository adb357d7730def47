"""Where the verbs meet: the stages from a file to numbers."""
