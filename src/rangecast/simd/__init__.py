"""Memory as the processor sees it, and arrays that are handed to kernels once."""
