"""Exact search: tasks and windows in, an optimal schedule or a refuted limit out."""
