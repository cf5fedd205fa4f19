"""One asynchronous training on machines: its orders, its actors, and the head that follows them."""
