"""How long something may take in a test that is not about speed."""

from __future__ import annotations

SOON_S = 60.0
"""Seconds that only a hang exceeds: test machines are slow, shared, and sometimes stopped for a while.

How fast something is, is measured by the benchmarks, as ratios within one run.
"""
