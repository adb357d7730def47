"""A systolic array by itself: closed forms, and products counted cycle by cycle."""
