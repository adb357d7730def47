"""The builder: HLO modules made by calls instead of text."""
