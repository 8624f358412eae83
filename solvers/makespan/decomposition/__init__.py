"""Parts of a problem as problems of their own, with the way back to the whole.

- `stretch`: a window of a sequence, for annealing; heads and tails come from the ops outside
- `segments`: the ops between two ops that all others come before or after
- `case_split`: a class on one device or another; a limit that is refuted in every case is refuted
"""
