"""Lower bounds. In: tasks, a limit on the makespan, what is known before, after and between ops. Out: seconds, windows.

- `windows`: heads and tails of every op under a limit; all other bounds use them
- `between`: the work that must happen between two ops
- `energy`: the work that must fit into a window
- `shared_work`: the linear program that shares out the work, and its prices
- `quick`: those together, and limits refuted by bisection
- `assignment_programs`: who runs where, with starts, as a linear and as an integer program
- `both_ends`, `both_ends_search`, `both_ends_state`: what any schedule loses at its beginning and its end, by A*
"""
