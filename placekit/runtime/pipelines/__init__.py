"""Executors of stages: a pipeline of threads, or one stage after another."""
