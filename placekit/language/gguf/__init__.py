"""Descriptions of language models from GGUF files."""
