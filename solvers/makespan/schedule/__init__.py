"""Schedules: from makespan problems and placements to arrays for kernels and times of all ops.

- `tasks`: the problem for proofs: edges with the delay of every pair of devices
- `timetable`: device, start and end of every op, in exchange with the judge
- `sequence`: placement and order as one topological sequence, decoded in linear time
"""
