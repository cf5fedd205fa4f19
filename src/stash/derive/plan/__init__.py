"""What to rent: a profile, a goal and a catalog in, a plan out. Pure."""
