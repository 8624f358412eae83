"""Cost models: a roofline model, or measurements through OpenVINO or PyTorch."""
