"""HLO text to and from the ir; the only room that reads or writes HLO characters."""
