"""Readers and writers: models, workloads, problems, costs, placements, results. Each imports what it needs."""
