"""What is bolted down: chips and pods as data, read from the configuration files."""
