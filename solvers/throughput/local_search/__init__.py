"""Local search over placements: annealed moves on nets, many levels of clusters."""
