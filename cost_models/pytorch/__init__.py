"""PyTorch programs on real devices: measured, and run."""
