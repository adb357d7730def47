"""From a scheduled module and a chip to a lowered program: every choice of tile, order and place."""
