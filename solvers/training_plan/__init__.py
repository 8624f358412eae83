"""Plans for training: the exact dynamic program, and what people do by hand."""
