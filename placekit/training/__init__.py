"""Training plans: pipeline stages with data and tensor parallel degrees and recomputation, and their judge."""
