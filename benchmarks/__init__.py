"""Benchmark suites, runner and report (arrive with their own issue)."""
