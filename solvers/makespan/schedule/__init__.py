"""Schedules: from makespan problems and placements to arrays for kernels and times of all ops.

- `tasks`: a problem as proofs see it, edges with the delay of every pair of devices
- `timetable`: where and when every op runs, from the judge and to it
- `sequence`: placement and order as one topological sequence, decoded in linear time
"""
