"""Descriptions of language models from the configuration that transformers reads."""
