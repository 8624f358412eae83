"""Check a result without trusting the method: a second judge, certificates, and exact arithmetic.

Nothing here shares code with the solvers, the judge or the kernels, and nothing is rounded. The certificates are
imported by :mod:`placekit.solve.result`, everything else by :func:`placekit.verify` on use.
"""
