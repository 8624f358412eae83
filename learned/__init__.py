"""Learned placers: policies that are trained to place the ops of a graph, or of any graph."""
