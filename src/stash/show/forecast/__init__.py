"""What a job would be with other machines or settings, for people in a terminal, in pictures and for programs."""
