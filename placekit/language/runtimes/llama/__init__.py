"""llama.cpp: its record and writer, the reader of its lines, names of tensors, and devices of other machines."""
