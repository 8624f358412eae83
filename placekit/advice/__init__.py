"""Advice on an answer: whether to split at all, why it is as good as it is, and what would change it."""
