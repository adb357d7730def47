"""The units of a chip that can be replaced: a protocol each, what ships, and how a chip's file names it."""
