"""The audit: people and a model in, pairs, triples, sums, evidence and a result out."""
