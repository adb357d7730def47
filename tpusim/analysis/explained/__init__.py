"""Why anything but a kernel takes as long as it does: collectives, loops, waits, copies, the host, branches, calls."""
