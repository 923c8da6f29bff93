"""Label-stratified matching of comparable people in different groups."""
