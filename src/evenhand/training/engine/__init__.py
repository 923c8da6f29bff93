"""Steps, batches and epochs of a stack of networks."""
