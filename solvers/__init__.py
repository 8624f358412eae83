"""Methods that turn a problem into a result: baselines, heuristics, exact solvers and bounds."""
