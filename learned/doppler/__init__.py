"""DOPPLER: one policy picks the next op, another its device; imitation, simulation, measured rewards."""
