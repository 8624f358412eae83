"""Answers of a command: tables, figures of speech, progress, and files."""
