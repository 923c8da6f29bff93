"""What a model must offer to be audited, and how models of each kind offer it.

Nothing is imported here: the process that opens a model file apart needs the trees and no torch.
"""
