"""A study in, its cells out: what each is, in which order, what became of it, what it takes. Pure."""
