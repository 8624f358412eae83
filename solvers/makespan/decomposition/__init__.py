"""Parts as problems of their own. In: a problem, and a schedule or a limit. Out: smaller problems, and the way back.

- `stretch`: a window of a sequence, for annealing; heads and tails that its outside leaves
- `neighbourhood`: a window of a timetable with some free ops, for the constraint program
- `case_split`: a class on one device or another; a limit is refuted if it is in every case
"""
