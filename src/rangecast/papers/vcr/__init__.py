"""Rectangle indexing by virtual construct rectangles, and its paper's experiment."""
