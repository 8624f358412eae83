"""PyTorch models: what torch.export says of a module, as an op graph; see `placekit.pytorch.source`."""
