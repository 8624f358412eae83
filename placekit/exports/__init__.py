"""Placements in the words of other runtimes: device maps, layers per stage, tensor rules, node annotations."""
