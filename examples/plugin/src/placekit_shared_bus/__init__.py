"""A sample plugin of placekit: an objective, pipelines whose devices share one bus, and a method, bands of depth."""
