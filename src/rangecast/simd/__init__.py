"""Memory as the processor sees it, and the decorators of kernels."""
