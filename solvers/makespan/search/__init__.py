"""Search for better schedules, which are offered to the run.

- `local_search`: the loop that chooses the next search
- `starts`: where searches begin
- `clusters`: the same problem with ops that stay together
- `incumbent`: the best schedule, and cycles and sweeps of annealing over it
- `anneal`, `proposals`, `moves`, `trial`, `walk`: one annealing: proposals, their trial, and undoing them
- `engine_order`: annealing of placements alone, for engines that take no order
"""
