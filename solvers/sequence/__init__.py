"""Methods one after the other on one solve: rows with plus signs, and the plans of ``auto``."""
