"""The OpenVINO backend: devices, profiling, splitting."""
