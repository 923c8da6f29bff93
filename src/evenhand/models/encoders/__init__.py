"""How the columns of a table become the inputs of a model, and which inputs come from which column."""
