"""Vocabulary of the problem: graph, platform, costs, problem, placement; and the errors."""
