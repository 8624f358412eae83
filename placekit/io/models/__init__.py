"""Readers of models: OpenVINO, ONNX, PyTorch."""
