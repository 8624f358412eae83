"""Language models: their shapes, what serving them costs, and what a placement of one delivers."""
