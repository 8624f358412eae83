"""Training of a learner: the loop, its clock, journal and checkpoints."""
