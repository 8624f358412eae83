"""Native solvers, each wrapped once: HiGHS, PuLP, CP-SAT, and the rounding between seconds and integers."""
