"""Profiles for XProf, in its protocol buffers."""
