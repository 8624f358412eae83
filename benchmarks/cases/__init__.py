"""Suites, as cases that are solved one by one."""
