"""Command ``placekit train-plan``, and how its files are shown and explained."""
