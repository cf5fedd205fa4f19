"""What to say and do about a breakdown, and about a machine's findings. The only home of advice."""
