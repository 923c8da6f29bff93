"""Turn user input into checked arrays: tables, the roles of their columns, encoding, splitting."""
