"""`format("rangecast")`: matches as a source, in batch and as a stream."""
