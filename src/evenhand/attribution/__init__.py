"""Attributions of a person's score from a baseline: integrated gradients, Shapley values, and the baselines."""
