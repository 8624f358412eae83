"""Throughput: the largest device load."""
