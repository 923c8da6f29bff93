"""Counterfactual explanation consistency for credit models."""
