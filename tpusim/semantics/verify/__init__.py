"""Rules of whole modules: structure, schedule, buffers, channels, annotations."""
