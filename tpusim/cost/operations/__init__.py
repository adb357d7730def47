"""What operations on elements take, by the tables ``vector_ops.toml`` and ``wide_ops.toml``."""
