"""Programs of which class is in which slot, for throughput and serial latency."""
