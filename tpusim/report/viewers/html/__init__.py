"""A run as one page for a browser: ``data`` gathers what it shows, ``page`` joins it with template and script."""
