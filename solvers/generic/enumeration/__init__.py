"""Every placement of a small problem, without those that a bound shows to be no better."""
