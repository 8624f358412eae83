"""Files of placekit, and of public workloads: schemas, readers and writers."""
