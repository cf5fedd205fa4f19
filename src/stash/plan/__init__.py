"""``stash recommend``: profiles, a goal and a catalog in, a plan out; and a plan held against a later profile."""
