"""The site and its pages."""
