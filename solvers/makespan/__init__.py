"""Makespan: one sample, every device runs one op at a time, tensors take time between devices.

Rooms, in the order in which they may import each other; what a room needs flows in from those before it:

1. `schedule`: what a schedule is, as sequences and as timetables.
2. `lists`: one schedule by a rule, in milliseconds.
3. `bounds`: what no schedule can beat.
4. `decomposition`: windows of a schedule and cases of a proof, as problems of their own.
5. `search`: better schedules by annealing.
6. `exact`: the constraint program, and which proof has which share of the time.

"""
