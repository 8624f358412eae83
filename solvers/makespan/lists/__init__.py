"""List schedulers. In: a problem. Out: one schedule each, offered to the run.

- `schedulers`: `heft`, `cpop`, `peft`, `critical-path`, `m-topo`, `m-etf`, `m-sct`
- `insertion`: ops by priority, each into the earliest gap where it is best off
- `earliest_start`: of all ready ops and devices the pair that starts first (Giffler-Thompson for many devices)
- `favourite_children`, `optimistic_costs`: what single rules need
"""
