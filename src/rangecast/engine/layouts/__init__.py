"""How boxes are laid out so that an event finds them: a module per layout, with its kernels beside it."""
