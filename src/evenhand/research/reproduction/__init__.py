"""Tables and charts of the paper: protocol, folds, stores of results, page."""
