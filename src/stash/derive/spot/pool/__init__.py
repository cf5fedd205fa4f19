"""What a fleet may be made of: types of a catalog, and what each does alone, from a profile."""
