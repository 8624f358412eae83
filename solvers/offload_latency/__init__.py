"""Methods for `OffloadLatency`: series decomposition, local search, constraint program."""
