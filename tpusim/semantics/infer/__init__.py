"""Result shapes of instructions, and the constraints on them, each under a label."""
