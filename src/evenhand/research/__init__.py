"""The methods that the paper compares, and the reproduction of its tables."""
