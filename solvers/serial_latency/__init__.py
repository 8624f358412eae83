"""Serial latency by minimum cuts."""
