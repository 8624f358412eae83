"""HDP, the placer of groups by a sequence-to-sequence network ("RNN-based" in comparisons)."""
