"""Generated problems: graphs of repeating blocks, recurrent lattices, shops, and random problems to learn from."""
