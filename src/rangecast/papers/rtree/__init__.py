"""Batch search on an R*-tree: the tree, the order of a batch, and the experiment."""
