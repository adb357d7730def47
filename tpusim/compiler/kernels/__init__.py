"""What is decided of a kernel once it is known what it makes."""
