"""Files and options of a command, as problems, platforms and objectives."""
