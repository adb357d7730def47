"""From numbers to text, plots and files; it formats and computes nothing."""
