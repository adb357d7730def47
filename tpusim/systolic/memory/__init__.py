"""What an array's memory does while folds run one after the other, as SCALE-Sim has it: stalls and accesses."""
