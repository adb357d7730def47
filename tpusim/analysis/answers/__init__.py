"""What answers are made of that take several runs: findings, and families of programs side by side."""
