"""Many runs over many machines: axes, execution on many cores, stored results, and what they say."""
