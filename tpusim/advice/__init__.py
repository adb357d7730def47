"""What would make a program faster: findings, each checked by running the alternative."""
