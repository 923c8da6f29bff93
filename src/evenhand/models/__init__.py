"""What a model must provide to be audited, and how each kind of model provides it.

Nothing is imported here: the separate process that opens a model file needs the trees but not torch.
"""
