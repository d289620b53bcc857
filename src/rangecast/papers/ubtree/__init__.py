"""The predicate index on a UB-tree, the counting index beside it, and their paper's experiment."""
