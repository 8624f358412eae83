"""Benchmarks: suites, their durable runner, statistics and report; and the tables and families of problems."""
