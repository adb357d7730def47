"""Values of instructions, by family of opcodes."""
