"""Every JSON document of the command line, as types that results fill."""
