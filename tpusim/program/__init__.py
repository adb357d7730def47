"""The lowered program as nouns: steps, the work of a tile, buffers."""
