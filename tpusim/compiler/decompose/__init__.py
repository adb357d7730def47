"""Pass 3: what the TPU compiler takes apart is taken apart, by a table of rules by opcode."""
