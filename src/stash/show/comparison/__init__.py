"""What two sides of profiles differ in, for people in a terminal and for programs."""
