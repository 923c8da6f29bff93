"""Studies: settings, pure functions, and tables of results."""
