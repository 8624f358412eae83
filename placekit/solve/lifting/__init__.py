"""Another problem solved in place of the given one, and its answers translated back."""
