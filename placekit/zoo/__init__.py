"""Real architectures with random weights, built without a download."""
