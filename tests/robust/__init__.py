"""Whether any input ends in a result or in one clear error: surfaces, mutations, and the contract that they keep."""
