"""Lower bounds. In: tasks, a limit on the makespan, what is known before and after ops. Out: seconds, windows.

- `windows`: heads and tails of every op under a limit; all other bounds use them
- `shared_work`: the linear program that shares out the work
- `quick`: those together, without a limit and with one
"""
