"""Files for viewers: browser, Perfetto, XProf, Model Explorer."""
