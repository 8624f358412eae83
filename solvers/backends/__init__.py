"""Native solvers, each wrapped once: HiGHS (also for PuLP), CP-SAT; programs, and the rounding to integers."""
