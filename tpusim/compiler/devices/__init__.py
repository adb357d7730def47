"""What several devices do together, and what could be done before or behind it on each of them."""
