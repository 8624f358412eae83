"""Plans beside the best: of the runtime itself, on fewer or other cards, in other precisions, with a full cache."""
