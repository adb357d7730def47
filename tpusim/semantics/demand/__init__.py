"""What a kernel needs of each of its operands."""
