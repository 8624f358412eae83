"""Lower bounds that hold for every feasible placement, each with its proof.

========================  =====================================================  =============================
name                      module                                                 cost
========================  =====================================================  =============================
largest op                :mod:`~placekit.solvers.generic.bounds.largest_op`             O(ops * kinds)
contiguous stages         :mod:`~placekit.solvers.throughput.bounds.stages`                 O(classes + edges), a path
unrelated machines        :mod:`~placekit.solvers.throughput.bounds.unrelated_machines`     one small linear program
memory-forced work        :mod:`~placekit.solvers.throughput.bounds.forced_work`            one small integer program
memory-forced cuts        :mod:`~placekit.solvers.throughput.bounds.forced_cuts`            O(classes**3) and the above
bottleneck device         :mod:`~placekit.solvers.throughput.bounds.bottleneck`             an integer program, anytime
========================  =====================================================  =============================

:func:`lower_bounds` tries them all. The integer program of the whole problem (method ``ilp``) gives a bound of its own.
"""

from placekit.solvers.generic.bounds.largest_op import largest_op as largest_op
from placekit.solvers.throughput.bounds.portfolio import lower_bounds as lower_bounds

__all__ = ["largest_op", "lower_bounds"]
