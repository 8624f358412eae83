"""Placeto: a placement improved op by op, by a policy that sees the graph around the op."""
