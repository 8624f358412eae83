"""Better schedules. In: a run, with what it knows. Out: schedules, offered to the run.

- `local_search`: which search has its turn
- `starts`: where searches begin
- `incumbent`: the best schedule, and cycles and sweeps of annealing over it
- `anneal`, `proposals`, `moves`, `trial`, `walk`: one annealing, from what it proposes to how it is taken back
"""
