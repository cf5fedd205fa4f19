"""What lasts: saved artefacts, and the catalog of dated facts and prices. Measures nothing and derives nothing."""
