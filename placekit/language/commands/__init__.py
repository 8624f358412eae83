"""Command ``placekit llm``, and the lines that start what it planned."""
