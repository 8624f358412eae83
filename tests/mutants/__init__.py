"""Mutation testing: change a line of a room, and see whether its tests notice.

`drawing` makes the mutants by the operators of cosmic-ray, `trials` runs the tests of each, of which `touched` leaves
those that run the changed function. ``equivalent.toml`` lists mutants that no test can notice, and ``python -m
tests.mutants`` does it all.
"""
