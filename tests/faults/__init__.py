"""What goes wrong on real machines, done to real profiles: a table of cases and one small driver."""
