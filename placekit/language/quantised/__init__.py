"""Bytes of quantised weights, by the rules of ``quantization_config``."""
