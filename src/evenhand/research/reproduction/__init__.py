"""Tables and charts of the paper, computed again."""
