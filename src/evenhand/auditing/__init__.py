"""The audit: takes people and a model; produces pairs, triples, sums, evidence and a result."""
