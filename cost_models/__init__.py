"""Where costs come from: a roofline model, or measurements through OpenVINO."""
