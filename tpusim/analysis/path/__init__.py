"""What the end of a run waits for, what could have come later, and what runs beside what."""
