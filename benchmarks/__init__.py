"""Benchmarks: suites, their durable runner, statistics and report; and the tables and families of problems.

What is wrong in a suite, a row, a file or an option raises a `PlacekitError` that names it; docstrings do not repeat
that.
"""
