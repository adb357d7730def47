"""What work takes on a chip: matrix and vector units, DMA, memories, tiles, collectives."""
