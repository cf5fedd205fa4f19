"""Which fleet to rent where machines stay: weighed, searched exactly, and held against how others choose."""
