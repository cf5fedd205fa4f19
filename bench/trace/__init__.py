"""``stash trace`` held against recorded jobs, other tools and damaged files."""
