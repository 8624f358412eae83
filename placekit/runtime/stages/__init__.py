"""Stages of a placement: cut out of the model, compiled, and run, by OpenVINO or PyTorch."""
