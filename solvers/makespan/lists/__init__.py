"""List schedulers: each offers one schedule to the run.

- `schedulers`: `heft`, `m-topo`, `m-etf`, `m-sct`
- `state`: the schedule so far, and what its classes take
- `insertion`: ops by priority, each into the earliest gap of the best device
- `earliest_start`: of all ready ops and devices the pair that starts first (Giffler-Thompson for many devices)
- `favourite_children`: the data of `m-sct`
"""
