"""Asynchronous execution of one sample on flat arrays: the instance, its simulators, priorities.

The judge :class:`~placekit.objectives.makespan.objective.Makespan` and every search for that objective run these
kernels. They need numba, so nothing here is imported by ``import placekit``.
"""
