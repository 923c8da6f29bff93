"""From what users hand in to checked arrays: tables, the roles of their columns, encoding, splitting."""
