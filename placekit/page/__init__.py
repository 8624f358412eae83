"""Local web page: one types a model and cards, and looks at the plan; a server for this machine alone."""
