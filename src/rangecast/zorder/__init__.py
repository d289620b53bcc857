"""The Z curve and a B+tree along it: what the UB-tree and the search for covers are both built on."""
