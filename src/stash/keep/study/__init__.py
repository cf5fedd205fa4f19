"""A study on file: what is to be measured where, as people write it, and the journal of what became of it."""
